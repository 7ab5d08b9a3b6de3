"""huey: threads, no results. It takes a job off the queue before it runs, so one that dies with its worker is lost."""

import logging
import os

import bench
from huey import RedisHuey
from redis import ConnectionPool

# Its own pool has fewer connections than threads, and jobs taken meanwhile would be lost.
pool = ConnectionPool.from_url(os.environ["BENCH_URL"], max_connections=1_000)
huey = RedisHuey("bench", connection_pool=pool, results=False)
tasks = {name: huey.task(name=name)(job) for name, job in bench.BLOCKING.items()}


def work(url, lanes):
    logging.disable(logging.INFO)
    consumer = huey.create_consumer(workers=lanes, periodic=False)
    bench.wait_for_go()
    consumer.run()


if __name__ == "__main__":
    bench.main(bench.ready(bench.OneByOne(tasks)), work)

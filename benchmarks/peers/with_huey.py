"""huey: threads, no results. It takes a job off the queue before it runs, so one that dies with its worker is lost."""

import logging
import os
import time
from contextlib import asynccontextmanager

import bench
from huey import RedisHuey
from redis import ConnectionPool

# Its own pool has fewer connections than threads, and jobs taken meanwhile would be lost.
pool = ConnectionPool.from_url(os.environ["BENCH_URL"], max_connections=1_000)
huey = RedisHuey("bench", connection_pool=pool, results=False)


@huey.task(name="noop")
def noop():
    bench.started()


@huey.task(name="nap")
def nap():
    bench.started()
    time.sleep(bench.NAP_S)


JOBS = {"noop": noop, "nap": nap}


class Sender:
    bulk = False

    async def one(self, kind):
        JOBS[kind]()

    async def many(self, kind, count):
        raise NotImplementedError


@asynccontextmanager
async def connect(url):
    yield Sender()


def work(url, lanes):
    logging.disable(logging.INFO)
    consumer = huey.create_consumer(workers=lanes, periodic=False)
    bench.wait_for_go()
    consumer.run()


if __name__ == "__main__":
    bench.main(connect, work)

"""dramatiq: the Redis broker, threads."""

import os
import signal

import bench
import dramatiq
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=os.environ["BENCH_URL"])
dramatiq.set_broker(broker)
actors = {name: dramatiq.actor(job, actor_name=name) for name, job in bench.BLOCKING.items()}


def work(url, lanes):
    worker = dramatiq.Worker(broker, worker_threads=lanes)
    bench.wait_for_go()
    worker.start()
    signal.pause()


if __name__ == "__main__":
    bench.main(bench.ready(bench.OneByOne({name: actor.send for name, actor in actors.items()})), work)

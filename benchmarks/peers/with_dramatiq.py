"""dramatiq: the Redis broker, threads."""

import os
import signal
import time
from contextlib import asynccontextmanager

import bench
import dramatiq
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=os.environ["BENCH_URL"])
dramatiq.set_broker(broker)


@dramatiq.actor
def noop():
    bench.started()


@dramatiq.actor
def nap():
    bench.started()
    time.sleep(bench.NAP_S)


JOBS = {"noop": noop, "nap": nap}


class Sender:
    bulk = False

    async def one(self, kind):
        JOBS[kind].send()

    async def many(self, kind, count):
        raise NotImplementedError


@asynccontextmanager
async def connect(url):
    yield Sender()


def work(url, lanes):
    worker = dramatiq.Worker(broker, worker_threads=lanes)
    bench.wait_for_go()
    worker.start()
    signal.pause()


if __name__ == "__main__":
    bench.main(connect, work)

"""taskiq with taskiq-redis: the broker on a stream, acknowledged after execution, no result backend."""

import asyncio
import os
from contextlib import asynccontextmanager

import bench
import uvloop
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

# From the beginning of the stream: the default would skip what was submitted before the first worker came.
broker = RedisStreamBroker(url=os.environ["BENCH_URL"], consumer_id="0")


@broker.task(task_name="noop")
async def noop():
    bench.started()


@broker.task(task_name="nap")
async def nap():
    bench.started()
    await asyncio.sleep(bench.NAP_S)


JOBS = {"noop": noop, "nap": nap}


class Sender:
    bulk = True

    async def one(self, kind):
        await JOBS[kind].kiq()

    async def many(self, kind, count):
        for _ in range(count // 50):
            await asyncio.gather(*(JOBS[kind].kiq() for _ in range(50)))
        for _ in range(count % 50):
            await JOBS[kind].kiq()


@asynccontextmanager
async def connect(url):
    await broker.startup()
    yield Sender()
    await broker.shutdown()


def work(url, lanes):
    bench.wait_for_go()
    uvloop.run(run_receiver_task(broker, max_async_tasks=lanes, max_prefetch=lanes, run_startup=True))


if __name__ == "__main__":
    bench.main(connect, work)

"""taskiq with taskiq-redis: the broker on a stream, acknowledged after execution, no result backend."""

import os
from contextlib import asynccontextmanager

import bench
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

# From the beginning of the stream: the default would skip what was submitted before the first worker came.
broker = RedisStreamBroker(url=os.environ["BENCH_URL"], consumer_id="0")
tasks = {name: broker.task(task_name=name)(job) for name, job in bench.ASYNC.items()}


class Sender:
    bulk = True

    async def one(self, kind):
        await tasks[kind].kiq()

    async def many(self, kind, count):
        await bench.together(tasks[kind].kiq, count, at_once=50)


@asynccontextmanager
async def connect(url):
    await broker.startup()
    yield Sender()
    await broker.shutdown()


async def consume(url, lanes):
    await run_receiver_task(broker, max_async_tasks=lanes, max_prefetch=lanes, run_startup=True)


if __name__ == "__main__":
    bench.main(connect, bench.on_uvloop(consume))

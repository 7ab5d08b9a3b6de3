"""streaq: no results kept."""

import os
from contextlib import asynccontextmanager

import bench
from streaq import Worker

worker = Worker(redis_url=os.environ["BENCH_URL"], concurrency=int(os.environ["BENCH_LANES"]), handle_signals=False)
tasks = {name: worker.task(ttl=0, name=name)(job) for name, job in bench.ASYNC.items()}


class Sender:
    bulk = True

    async def one(self, kind):
        await tasks[kind].enqueue()

    async def many(self, kind, count):
        await worker.enqueue_many([tasks[kind].enqueue() for _ in range(count)])


@asynccontextmanager
async def connect(url):
    async with worker:
        yield Sender()


def work(url, lanes):
    bench.wait_for_go()
    worker.run_sync()


if __name__ == "__main__":
    bench.main(connect, work)

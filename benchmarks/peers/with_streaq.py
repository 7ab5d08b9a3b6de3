"""streaq: no results kept."""

import asyncio
import os
from contextlib import asynccontextmanager

import bench
from streaq import Worker

worker = Worker(redis_url=os.environ["BENCH_URL"], concurrency=int(os.environ["BENCH_LANES"]), handle_signals=False)


@worker.task(ttl=0, name="noop")
async def noop():
    bench.started()


@worker.task(ttl=0, name="nap")
async def nap():
    bench.started()
    await asyncio.sleep(bench.NAP_S)


JOBS = {"noop": noop, "nap": nap}


class Sender:
    bulk = True

    async def one(self, kind):
        await JOBS[kind].enqueue()

    async def many(self, kind, count):
        await worker.enqueue_many([JOBS[kind].enqueue() for _ in range(count)])


@asynccontextmanager
async def connect(url):
    async with worker:
        yield Sender()


def work(url, lanes):
    bench.wait_for_go()
    worker.run_sync()


if __name__ == "__main__":
    bench.main(connect, work)

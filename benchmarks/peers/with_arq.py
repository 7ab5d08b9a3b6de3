"""arq: no results kept; it polls, so the pause between polls is cut from 500 ms to 5 ms."""

import asyncio
from contextlib import asynccontextmanager

import bench
import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func


async def noop(context):
    bench.started()


async def nap(context):
    bench.started()
    await asyncio.sleep(bench.NAP_S)


class Sender:
    bulk = True

    def __init__(self, pool):
        self.pool = pool

    async def one(self, kind):
        await self.pool.enqueue_job(kind)

    async def many(self, kind, count):
        for done in range(0, count, 50):
            await asyncio.gather(*(self.one(kind) for _ in range(min(50, count - done))))


@asynccontextmanager
async def connect(url):
    pool = await create_pool(RedisSettings.from_dsn(url))
    yield Sender(pool)
    await pool.aclose()


async def consume(url, lanes):
    jobs = [func(noop, keep_result=0), func(nap, keep_result=0)]
    worker = Worker(
        jobs, redis_settings=RedisSettings.from_dsn(url), max_jobs=lanes, poll_delay=0.005, handle_signals=False
    )
    await worker.async_run()


def work(url, lanes):
    bench.wait_for_go()
    uvloop.run(consume(url, lanes))


if __name__ == "__main__":
    bench.main(connect, work)

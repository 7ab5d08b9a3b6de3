"""arq: no results kept; it polls, so the pause between polls is cut from 500 ms to 5 ms."""

from contextlib import asynccontextmanager

import bench
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func


class Sender:
    bulk = True

    def __init__(self, pool):
        self.pool = pool

    async def one(self, kind):
        await self.pool.enqueue_job(kind)

    async def many(self, kind, count):
        await bench.together(lambda: self.one(kind), count, at_once=50)


@asynccontextmanager
async def connect(url):
    pool = await create_pool(RedisSettings.from_dsn(url))
    yield Sender(pool)
    await pool.aclose()


async def consume(url, lanes):
    jobs = [func(job, name=name, keep_result=0) for name, job in bench.ASYNC.items()]
    settings = RedisSettings.from_dsn(url)
    worker = Worker(jobs, redis_settings=settings, max_jobs=lanes, poll_delay=0.005, handle_signals=False)
    await worker.async_run()


if __name__ == "__main__":
    bench.main(connect, bench.on_uvloop(consume))

"""saq: no results kept."""

import asyncio
from contextlib import asynccontextmanager

import bench
import uvloop
from saq import Queue, Worker


async def noop(context):
    bench.started()


async def nap(context):
    bench.started()
    await asyncio.sleep(bench.NAP_S)


class Sender:
    bulk = True

    def __init__(self, queue):
        self.queue = queue

    async def one(self, kind):
        await self.queue.enqueue(kind, ttl=-1)

    async def many(self, kind, count):
        await asyncio.gather(*(self.one(kind) for _ in range(count)))


@asynccontextmanager
async def connect(url):
    queue = Queue.from_url(url)
    await queue.connect()
    yield Sender(queue)
    await queue.disconnect()


async def consume(url, lanes):
    queue = Queue.from_url(url)
    await queue.connect()
    await Worker(queue, functions=[noop, nap], concurrency=lanes).start()


def work(url, lanes):
    bench.wait_for_go()
    uvloop.run(consume(url, lanes))


if __name__ == "__main__":
    bench.main(connect, work)

"""saq: no results kept."""

from contextlib import asynccontextmanager

import bench
from saq import Queue, Worker


class Sender:
    bulk = True

    def __init__(self, queue):
        self.queue = queue

    async def one(self, kind):
        await self.queue.enqueue(kind, ttl=-1)

    async def many(self, kind, count):
        await bench.together(lambda: self.one(kind), count, at_once=count)


@asynccontextmanager
async def connect(url):
    queue = Queue.from_url(url)
    await queue.connect()
    yield Sender(queue)
    await queue.disconnect()


async def consume(url, lanes):
    queue = Queue.from_url(url)
    await queue.connect()
    await Worker(queue, functions=list(bench.ASYNC.items()), concurrency=lanes).start()


if __name__ == "__main__":
    bench.main(connect, bench.on_uvloop(consume))

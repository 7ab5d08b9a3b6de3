"""rq: SimpleWorker, one job at a time in the worker's own process."""

import logging
from contextlib import nullcontext

import bench
from redis import Redis
from rq import Queue, SimpleWorker


class Sender:
    bulk = True

    def __init__(self, url):
        self.queue = Queue("bench", connection=Redis.from_url(url))

    async def one(self, kind):
        self.queue.enqueue("bench.noop", result_ttl=0)

    async def many(self, kind, count):
        self.queue.enqueue_many([Queue.prepare_data("bench.noop", result_ttl=0) for _ in range(count)])


def work(url, lanes):
    logging.disable(logging.WARNING)
    connection = Redis.from_url(url)
    worker = SimpleWorker([Queue("bench", connection=connection)], connection=connection)
    bench.wait_for_go()
    worker.work(logging_level="ERROR")


if __name__ == "__main__":
    bench.main(lambda url: nullcontext(Sender(url)), work)

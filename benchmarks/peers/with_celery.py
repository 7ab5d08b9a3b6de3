"""celery: the pool of threads, results ignored, no gossip between workers."""

import os
import time
from contextlib import asynccontextmanager

import bench
from celery import Celery

app = Celery("bench", broker=os.environ["BENCH_URL"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)


@app.task(name="noop")
def noop():
    bench.started()


@app.task(name="nap")
def nap():
    bench.started()
    time.sleep(bench.NAP_S)


class Sender:
    bulk = False

    async def one(self, kind):
        app.tasks[kind].apply_async()

    async def many(self, kind, count):
        raise NotImplementedError


@asynccontextmanager
async def connect(url):
    yield Sender()


def work(url, lanes):
    import celery.concurrency.thread  # noqa: F401 - imported before the start, as everything is

    bench.wait_for_go()
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
    app.worker_main(["--quiet", "worker", "--pool=threads", f"--concurrency={lanes}", *quiet])


if __name__ == "__main__":
    bench.main(connect, work)

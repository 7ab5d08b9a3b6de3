"""celery: the pool of threads, results ignored, no gossip between workers."""

import os

import bench
from celery import Celery

app = Celery("bench", broker=os.environ["BENCH_URL"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)
tasks = {name: app.task(name=name)(job) for name, job in bench.BLOCKING.items()}


def work(url, lanes):
    import celery.concurrency.thread  # noqa: F401 - imported before the start, as everything is

    bench.wait_for_go()
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
    app.worker_main(["--quiet", "worker", "--pool=threads", f"--concurrency={lanes}", *quiet])


if __name__ == "__main__":
    bench.main(bench.ready(bench.OneByOne({name: task.apply_async for name, task in tasks.items()})), work)

"""RQ's own classes, for what is rare: being registered as a worker, and jobs that somebody enqueued with RQ's own API.

A doorbell that our scripts rang is answered by a script (`bells`). One that RQ wrote may have dependents, repeats, a
group or a result to keep, so RQ's own code closes the books on it. Its callbacks are not called: they are import paths
found in Redis. Everything here blocks; the worker runs it in a thread.
"""

import threading
from collections.abc import Sequence

import redis
from rq import Queue, SimpleWorker
from rq.exceptions import NoSuchJobError
from rq.executions import Execution
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.suspension import WORKERS_SUSPENDED
from rq.utils import now

from postroom.mailbox.connect import connect
from postroom.worker.bells import Bell, started_registry

SUSPENDED: str = WORKERS_SUSPENDED
FAILURE_TTL_S = 7 * 24 * 60 * 60


class StockWorker:
    """This worker as RQ sees it: listed while it lives, and the one who closes RQ's books."""

    def __init__(self, url: str, queues: Sequence[str], name: str) -> None:
        self.connection: redis.Redis = connect(url)
        # RQ's worker has one job at a time, in a field.
        self._one_at_a_time = threading.Lock()
        self._worker = SimpleWorker(
            [self._queue(each) for each in queues], name=name, connection=self.connection, serializer=JSONSerializer
        )
        self._worker.register_birth()  # type: ignore[no-untyped-call]

    def leave(self) -> None:
        """Takes the worker off RQ's list."""
        self._worker.register_death()  # type: ignore[no-untyped-call]
        self.connection.close()

    def finished(self, bell: Bell) -> None:
        """The doorbell was answered: RQ keeps or drops the job, repeats it, and enqueues what depended on it."""
        with self._one_at_a_time:
            job = self._started(bell)
            if job is not None:
                queue = self._queue(bell.queue)
                self._worker.handle_job_success(job, queue, queue.started_job_registry)

    def refused(self, bell: Bell, reason: str) -> None:
        """We will not run this job: RQ retries it if it may be, otherwise `rq requeue` finds it among the failed."""
        with self._one_at_a_time:
            job = self._started(bell)
            if job is not None:
                job.failure_ttl = job.failure_ttl or FAILURE_TTL_S
                queue = self._queue(bell.queue)
                self._worker.handle_job_failure(job, queue, queue.started_job_registry, exc_string=reason)

    def _started(self, bell: Bell) -> Job | None:
        """The job, if it is still ours to close: somebody who took us for dead may have put it back meanwhile."""
        if self.connection.zscore(started_registry(bell.queue), bell.entry) is None:
            return None
        try:
            job = Job.fetch(bell.job, connection=self.connection, serializer=JSONSerializer)
        except NoSuchJobError:
            return None
        job.ended_at = now()
        self._worker.execution = Execution(bell.execution, bell.job, self.connection)
        return job

    def _queue(self, name: str) -> Queue:
        return Queue(name, connection=self.connection, serializer=JSONSerializer)

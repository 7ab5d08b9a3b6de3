"""What RQ promises to whoever enqueues with its API, in eighteen checks, kept by a fleet worker or refused on purpose.

Refused are jobs that are no doorbells, and callbacks: a worker runs nothing but its handlers. `make rq-versions` holds
the oldest and the newest RQ that we claim to this file.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from rq import Callback, Queue, Repeat, Retry
from rq.exceptions import DuplicateJobError
from rq.group import Group
from rq.job import Job
from rq.registry import FailedJobRegistry, StartedJobRegistry
from rq.serializers import JSONSerializer
from rq.suspension import resume, suspend

from postroom.mailbox import ops, scripts
from postroom.mailbox.contracts import RunRequest
from postroom.worker import bells
from tests.waiting import until
from tests.worker.fleet import APP, ROOT, Child, Fleet, FleetOn, Server

FOREIGN = "math.sqrt"
# Called by mistake, it would take the worker with it.
DEADLY = Callback("os.abort")
Ring = Callable[..., Job]


@pytest.fixture
def queue(fleet: Fleet) -> Queue:
    return queue_of(fleet)


@pytest.fixture
def ring(fleet: Fleet, queue: Queue) -> Ring:
    """Rings for a run as any program may that knows RQ alone."""

    def enqueue(run: RunRequest, **options: Any) -> Job:
        return queue.enqueue(scripts.JOB, run.thread_id, run.run_id, **options)

    return enqueue


def queue_of(fleet: Fleet, name: str | None = None) -> Queue:
    return Queue(name or fleet.queue, connection=fleet.client, serializer=JSONSerializer)


def unheard(fleet: Fleet, script: list[Any]) -> RunRequest:
    """A run whose own doorbell nobody hears."""
    return fleet.submit(script, queue=f"{fleet.queue}-away")


def status(job: Job) -> str:
    return str(job.get_status().value)


def becomes(job: Job, wanted: str) -> None:
    until(lambda: status(job) == wanted, 15, f"job {job.id} is {wanted}")


def gone(fleet: Fleet, job: Job) -> None:
    until(lambda: not fleet.client.exists(f"rq:job:{job.id}"), 15, f"job {job.id} is gone")


def served_by_rq(fleet: Fleet) -> None:
    """The stock worker works off the queue."""
    command = [sys.executable, "-m", "rq.cli", "worker", "--url", fleet.url, "--burst", "--quiet", fleet.queue]
    command += ["--serializer", "rq.serializers.JSONSerializer"]
    environ = fleet.environ | {"POSTROOM_REDIS_URL": fleet.url, "POSTROOM_APP": APP, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=ROOT, env=environ, check=True, timeout=60)


def test_01_an_async_job(fleet: Fleet, ring: Ring) -> None:
    run = unheard(fleet, ["heard"])
    job = ring(run)
    fleet.worker()
    becomes(job, "finished")
    assert fleet.status(run) == "done"
    assert job.return_value() is None
    assert StartedJobRegistry(fleet.queue, connection=fleet.client).get_job_ids(cleanup=False) == []
    second = unheard(fleet, ["heard by another"])
    done = queue_of(fleet, f"{fleet.queue}-away").enqueue(scripts.JOB, second.thread_id, second.run_id)
    fleet.queue = f"{fleet.queue}-away"
    served_by_rq(fleet)
    becomes(done, "finished")
    assert fleet.status(second) == "done"


def test_02_a_sync_job_is_not_ours_and_is_refused(fleet: Fleet, queue: Queue) -> None:
    worker = fleet.worker()
    job = queue.enqueue(FOREIGN, 9)
    becomes(job, "failed")
    assert worker.process.poll() is None


def test_03_the_failed_registry(fleet: Fleet, queue: Queue) -> None:
    fleet.worker()
    job = queue.enqueue(FOREIGN, 9)
    becomes(job, "failed")
    registry = FailedJobRegistry(fleet.queue, connection=fleet.client, serializer=JSONSerializer)
    assert registry.get_job_ids(cleanup=False) == [job.id]
    result = job.latest_result()
    assert result is not None
    assert "no handler" in str(result.exc_string)
    assert StartedJobRegistry(fleet.queue, connection=fleet.client).get_job_ids(cleanup=False) == []


def test_04_requeue(fleet: Fleet, queue: Queue) -> None:
    worker = fleet.worker()
    job = queue.enqueue(FOREIGN, 9)
    becomes(job, "failed")
    assert worker.stop() == 0
    FailedJobRegistry(fleet.queue, connection=fleet.client, serializer=JSONSerializer).requeue(job.id)
    assert queue.job_ids == [job.id]
    served_by_rq(fleet)
    assert job.return_value() == 3.0


def test_05_retry_at_once(fleet: Fleet, queue: Queue) -> None:
    fleet.worker()
    job = queue.enqueue(FOREIGN, 9, retry=Retry(max=2))
    becomes(job, "failed")
    job.refresh()  # type: ignore[no-untyped-call]
    assert job.retries_left == 0


def test_06_retry_later(fleet: Fleet, queue: Queue) -> None:
    fleet.worker()
    job = queue.enqueue(FOREIGN, 9, retry=Retry(max=1, interval=600))
    becomes(job, "scheduled")
    registry = queue.scheduled_job_registry
    until(lambda: registry.get_job_ids(cleanup=False) == [job.id], 5, "the job is in the registry")


def test_07_a_dependent_runs_after_what_it_depends_on(fleet: Fleet, ring: Ring) -> None:
    first, second = unheard(fleet, [{"sleep": 0.2, "say": "first"}]), unheard(fleet, ["second"])
    job = ring(first)
    dependent = ring(second, depends_on=job)
    assert status(dependent) == "deferred"
    fleet.worker()
    becomes(dependent, "finished")
    finished = (fleet.run(first).finished, fleet.run(second).finished)
    assert finished == tuple(sorted(finished, key=lambda at: at or 0))


def test_08_a_dependent_of_a_failed_job_stays_deferred(fleet: Fleet, queue: Queue, ring: Ring) -> None:
    broken = queue.enqueue(FOREIGN, 9)
    run = unheard(fleet, ["never"])
    dependent = ring(run, depends_on=broken)
    fleet.worker()
    becomes(broken, "failed")
    assert (status(dependent), fleet.status(run)) == ("deferred", "queued")


def test_09_no_success_callback_is_called(fleet: Fleet, ring: Ring) -> None:
    worker = fleet.worker()
    job = ring(unheard(fleet, ["heard"]), on_success=DEADLY)
    becomes(job, "finished")
    assert worker.process.poll() is None


def test_10_no_failure_callback_is_called(fleet: Fleet, queue: Queue) -> None:
    worker = fleet.worker()
    job = queue.enqueue(FOREIGN, 9, on_failure=DEADLY)
    becomes(job, "failed")
    assert worker.process.poll() is None


def test_11_a_jobs_timeout_does_not_end_a_run(fleet: Fleet, ring: Ring) -> None:
    fleet.worker()
    run = unheard(fleet, [{"sleep": 1.5, "say": "in my own time"}])
    job = ring(run, job_timeout=1)
    becomes(job, "finished")
    assert (fleet.status(run), fleet.run(run).attempts) == ("done", 0)


def test_12_repeat(fleet: Fleet, ring: Ring) -> None:
    worker = fleet.worker()
    job = ring(unheard(fleet, ["heard"]), repeat=Repeat(times=2, interval=0), result_ttl=0)
    gone(fleet, job)
    assert fleet.client.hget(f"rq:worker:{worker.title}", "successful_job_count") == b"3"


def test_13_the_result_is_kept_as_long_as_asked(fleet: Fleet, ring: Ring) -> None:
    fleet.worker()
    run = unheard(fleet, ["heard"])
    gone(fleet, ring(run, result_ttl=0))
    kept = ring(run, result_ttl=60)
    becomes(kept, "finished")
    assert 0 < fleet.client.ttl(f"rq:job:{kept.id}") <= 60


def beat(fleet: Fleet, worker: Child) -> bytes:
    found: bytes = fleet.client.hget(f"postroom:worker:{worker.title}", "beat")
    return found


def test_14_suspend_and_resume(server: Server, fleet_on: FleetOn) -> None:
    with fleet_on(server.url) as fleet:
        suspend(fleet.client)
        worker = fleet.worker()
        run = fleet.submit(["at last"])
        first = beat(fleet, worker)
        until(lambda: beat(fleet, worker) != first, 5, "a heartbeat has passed")
        assert fleet.status(run) == "queued"
        resume(fleet.client)
        until(lambda: fleet.all_done([run]), 5, "the work goes on")


def test_15_a_long_job_is_kept_from_counting_as_abandoned(fleet: Fleet, queue: Queue) -> None:
    run = fleet.submit(["slowly"])
    long_ago = int(time.time() - scripts.ABANDONED_AFTER_S - 5) * 1000
    (bell,) = ops.run(fleet.client, bells.take([fleet.queue], 1, "w", 60_000, "batch", now=long_ago))
    assert ops.run(fleet.client, bells.extend(fleet.queue, [bell.entry], datetime.now(UTC))) == 1
    registry = StartedJobRegistry(fleet.queue, connection=fleet.client, serializer=JSONSerializer)
    assert registry.get_job_ids() == [f"{run.run_id}-1"], "RQ's own clean-up leaves it alone"
    assert status(Job.fetch(bell.job, connection=fleet.client, serializer=JSONSerializer)) == "started"


def test_16_a_second_queue_is_served_after_the_first(fleet: Fleet) -> None:
    low, high = fleet.submit(["low"]), fleet.submit(["high"], queue=f"{fleet.queue}-high")
    queues = f"{fleet.queue}-high,{fleet.queue}"
    fleet.start("worker", "--app", APP, "--queues", queues, "--concurrency", "1", title="both")
    until(lambda: fleet.all_done([low, high]), 15, "both are done")
    assert (fleet.run(high).finished or 0) <= (fleet.run(low).started or 0)


def test_17_a_group(fleet: Fleet, queue: Queue) -> None:
    runs = [unheard(fleet, [f"number {i}"]) for i in range(3)]
    group = Group.create(connection=fleet.client)
    data = [Queue.prepare_data(scripts.JOB, (run.thread_id, run.run_id), result_ttl=60) for run in runs]
    group.enqueue_many(queue, data)
    fleet.worker()
    until(lambda: {status(job) for job in group.get_jobs()} == {"finished"}, 15, "the group is done")
    assert len(group.get_jobs()) == 3
    assert fleet.all_done(runs)


def test_18_a_unique_job(fleet: Fleet, ring: Ring) -> None:
    run, name = unheard(fleet, ["once"]), f"only-{fleet.tag}"
    job = ring(run, job_id=name, unique=True, result_ttl=0)
    with pytest.raises(DuplicateJobError):
        ring(run, job_id=name, unique=True, result_ttl=0)
    fleet.worker()
    gone(fleet, job)
    assert ring(run, job_id=name, unique=True, result_ttl=0).id == name

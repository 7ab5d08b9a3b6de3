"""What RQ's tools show of a fleet at work: `rq info`, a dashboard, and the stock worker beside ours.

A dashboard is read twice: through RQ's classes, asked just as rq-dashboard asks them, always; and the real one over
HTTP where it is installed (`make rq-dashboard`), for it brings a web framework along that nobody needs otherwise.
"""

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

import pytest
from rq import Queue
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.worker import BaseWorker, Worker

from tests.waiting import until
from tests.worker.fleet import APP, ROOT, Fleet, FleetOn, Server

REGISTRIES = ("failed", "started", "deferred", "finished", "canceled", "scheduled")


class View(Protocol):
    """What a dashboard tells."""

    def queues(self) -> dict[str, dict[str, int]]: ...

    def workers(self) -> dict[str, dict[str, Any]]: ...

    def jobs(self, queue: str, registry: str) -> dict[str, dict[str, Any]]: ...


class Classes:
    """RQ's classes, asked as rq-dashboard asks them: workers and their jobs without a serializer, for one."""

    def __init__(self, fleet: Fleet) -> None:
        self.client = fleet.client

    def queues(self) -> dict[str, dict[str, int]]:
        return {each.name: self._counts(each) for each in Queue.all(connection=self.client)}

    def _counts(self, queue: Queue) -> dict[str, int]:
        found = {name: getattr(queue, f"{name}_job_registry").get_job_count(cleanup=False) for name in REGISTRIES}
        return {"queued": queue.count, **found}

    def workers(self) -> dict[str, dict[str, Any]]:
        return {each.name: self._told(each) for each in Worker.all(connection=self.client)}

    def _told(self, worker: BaseWorker) -> dict[str, Any]:
        job = worker.get_current_job()
        names = [queue.name for queue in worker.queues]
        current = job and {"job_id": job.id, "description": job.description, "call_string": job.get_call_string()}
        return {"queues": names, "state": str(worker.get_state()), "current_job": current or "idle", "pid": worker.pid}

    def jobs(self, queue: str, registry: str) -> dict[str, dict[str, Any]]:
        found = Queue(queue, connection=self.client, serializer=JSONSerializer)
        source = found if registry == "queued" else getattr(found, f"{registry}_job_registry")
        fetched = Job.fetch_many(source.get_job_ids(), connection=self.client, serializer=JSONSerializer)
        return {job.id: self._shown(job) for job in fetched if job}

    def _shown(self, job: Job) -> dict[str, Any]:
        result = job.latest_result()
        return {"description": job.description, "exc_info": result.exc_string if result else None}


class Dashboard:
    """The real one, as its own pages ask it."""

    def __init__(self, address: str) -> None:
        self.address = address

    def queues(self) -> dict[str, dict[str, int]]:
        return {each["name"]: self._counts(each) for each in self._ask("queues")["queues"]}

    def _counts(self, told: dict[str, Any]) -> dict[str, int]:
        return {"queued": told["count"], **{name: told[f"{name}_job_registry_count"] for name in REGISTRIES}}

    def workers(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in self._ask("workers")["workers"]}

    def jobs(self, queue: str, registry: str) -> dict[str, dict[str, Any]]:
        return {each["id"]: each for each in self._ask(f"jobs/{queue}/{registry}/8/asc/1")["jobs"]}

    def _ask(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self.address}/0/data/{what}.json", timeout=10) as answer:
            return json.load(answer)


@contextmanager
def looking(kind: str, fleet: Fleet) -> Iterator[View]:
    if kind == "classes":
        yield Classes(fleet)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [sys.executable, "-m", "rq_dashboard", "--json", "-b", "127.0.0.1", "-p", port, "-u", fleet.url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listening(int(port)), 20, "the dashboard is up")
        yield Dashboard(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(10)


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def rq(fleet: Fleet, *words: str) -> str:
    environ = fleet.environ | {"POSTROOM_REDIS_URL": fleet.url, "POSTROOM_APP": APP, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "rq.cli", words[0], "--url", fleet.url, *words[1:]]
    done = subprocess.run(command, cwd=ROOT, env=environ, check=True, timeout=60, capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize(
    "kind",
    [
        "classes",
        pytest.param("dashboard", marks=pytest.mark.skipif(not find_spec("rq_dashboard"), reason="not installed")),
    ],
)
def test_rqs_tools_see_the_fleet_as_it_is(kind: str, server: Server, fleet_on: FleetOn) -> None:
    with fleet_on(server.url) as fleet, looking(kind, fleet) as view:
        worker, away = fleet.worker(), f"{fleet.queue}-away"
        busy = fleet.submit([{"sleep": 60, "say": "at length"}])
        waiting = [fleet.submit(["later"], queue=away) for _ in range(2)]
        refused = Queue(fleet.queue, connection=fleet.client, serializer=JSONSerializer).enqueue("math.sqrt", 9)
        job = f"{busy.run_id}-1"
        until(lambda: view.workers()[worker.title]["state"].endswith("busy"), 10, "the worker shows as busy")
        until(lambda: view.jobs(fleet.queue, "failed"), 10, "the refused job shows as failed")

        nothing = dict.fromkeys(("queued", *REGISTRIES), 0)
        assert view.queues() == {
            fleet.queue: {**nothing, "started": 1, "failed": 1},
            away: {**nothing, "queued": 2},
        }
        shown = view.workers()[worker.title]
        assert (shown["queues"], shown["pid"], shown["current_job"]) == ([fleet.queue], worker.pid, "idle")
        assert busy.run_id in view.jobs(fleet.queue, "started")[job]["description"]
        assert list(view.jobs(fleet.queue, "started")) == [job]
        assert list(view.jobs(away, "queued")) == [f"{run.run_id}-1" for run in waiting]
        assert "no handler" in view.jobs(fleet.queue, "failed")[refused.id]["exc_info"]

        told = rq(fleet, "info", "--raw")
        assert f"queue {away} 2" in told
        assert f"worker {worker.title}" in told

        rq(fleet, "worker", "--burst", "--quiet", "--serializer", "rq.serializers.JSONSerializer", away)
        assert fleet.all_done(waiting)
        assert view.queues()[away] == nothing

        fleet.dispatcher.cancel(busy.run_id)
        until(lambda: view.jobs(fleet.queue, "started") == {}, 10, "the cancelled run's job is gone")
        assert worker.stop() == 0
        assert view.workers() == {}

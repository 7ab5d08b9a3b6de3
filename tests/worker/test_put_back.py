"""Doorbells that a worker had taken when it died, before it knew: their runs go on elsewhere."""

import os
import signal
import threading

from postroom.mailbox import keys
from postroom.mailbox.contracts import RunRequest
from tests.waiting import until
from tests.worker import history
from tests.worker.fleet import Fleet, FleetOn
from tests.worker.proxy import Proxy


def job_of(run: RunRequest) -> bytes:
    """What no reply says of the run but the one with the taken doorbell."""
    return f'"{run.run_id}"], {{}}]'.encode()


def rings(fleet: Fleet, run: RunRequest) -> int:
    return int(fleet.client.hget(keys.run(run.thread_id, run.run_id), "rings"))


def taker(fleet: Fleet, run: RunRequest, held: threading.Event) -> str:
    """The worker that took the run's doorbell and has not been told."""
    assert held.wait(10)
    assert fleet.status(run) == "running"
    return str(fleet.client.hget(f"rq:job:{run.run_id}-1", "worker_name").decode())


def test_a_supervisor_takes_back_what_its_dead_child_had_taken(fleet_on: FleetOn, server_url: str) -> None:
    with fleet_on(server_url, lease_ms=60_000, heartbeat_ms=20_000) as fleet, Proxy(server_url) as proxy:
        fleet.supervised(2, url=proxy.url)
        run = fleet.request(["heard"])
        held = proxy.hold(job_of(run))
        fleet.submit_all([run])
        os.kill(fleet.alive()[taker(fleet, run, held)], signal.SIGKILL)
        until(lambda: fleet.all_done([run]), 10, "the run is done")
        assert (fleet.run(run).attempts, rings(fleet, run)) == (1, 2)
        until(lambda: fleet.client.zcard(f"rq:wip:{fleet.queue}") == 0, 5, "nothing counts as started")
        assert history.wrong(fleet, [run]) == []


def test_what_a_lost_machine_had_taken_goes_on_when_its_lease_ends(fleet: Fleet) -> None:
    with Proxy(fleet.url) as proxy:
        lost = fleet.worker(url=proxy.url)
        run = fleet.request(["heard"])
        held = proxy.hold(job_of(run))
        fleet.submit_all([run])
        assert taker(fleet, run, held) == lost.title
        fleet.worker()
        lost.kill()
        until(lambda: fleet.all_done([run]), 10, "the run is done")
        assert (fleet.run(run).attempts, rings(fleet, run)) == (1, 2)
        assert history.wrong(fleet, [run]) == []


def test_a_doorbell_whose_run_was_claimed_is_dropped(fleet_on: FleetOn, server_url: str) -> None:
    with fleet_on(server_url, lease_ms=60_000, heartbeat_ms=20_000) as fleet:
        fleet.supervised(2)
        run = fleet.submit([{"sleep": 1, "say": "one"}])
        os.kill(fleet.alive()[fleet.held(run).worker], signal.SIGKILL)
        until(lambda: fleet.all_done([run]), 10, "the run is done")
        assert (fleet.run(run).attempts, rings(fleet, run)) == (1, 2)
        assert not fleet.client.exists(f"rq:job:{run.run_id}-1")
        until(lambda: fleet.client.zcard(f"rq:wip:{fleet.queue}") == 0, 5, "nothing counts as started")

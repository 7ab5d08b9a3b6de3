"""The server itself is killed: what it acknowledged is there again; when power is lost, all but the last moment."""

import os
import signal

import pytest

from postroom.mailbox.contracts import RunRequest
from postroom.mailbox.errors import NotFound
from tests.waiting import until
from tests.worker import history
from tests.worker.fleet import LONG, Fleet, FleetOn, Server

SCRIPT = [{"sleep": 0.05, "say": f"step {step}"} for step in range(6)]
ROUNDS = 10 if LONG else 1


def work(fleet: Fleet, count: int, done: int) -> list[RunRequest]:
    """Submits runs, a few to a thread, and waits until some of them are done."""
    threads = [fleet.thread() for _ in range(count // 2)]
    runs = [fleet.request(SCRIPT, threads[i % len(threads)]) for i in range(count)]
    fleet.submit_all(runs)
    until(lambda: fleet.statuses(runs).count("done") >= done, 20, f"{done} are done")
    return runs


def known(fleet: Fleet, runs: list[RunRequest]) -> list[RunRequest]:
    return [run for run, status in zip(runs, fleet.statuses(runs), strict=True) if status]


def test_what_was_acknowledged_survives_kill_9(server: Server, fleet_on: FleetOn) -> None:
    with fleet_on(server.url, max_attempts=100) as fleet:
        children = [*fleet.workers(2, concurrency=16), fleet.sweeper()]
        runs: list[RunRequest] = []
        for _ in range(ROUNDS):
            runs += work(fleet, 40, 10)
            server.kill()
            server.start()
            fleet.reconnect()
            assert len(known(fleet, runs)) == len(runs)
        until(lambda: fleet.all_done(runs), 40, "all are done")
        assert history.wrong(fleet, runs) == []
        assert [child.process.poll() for child in children] == [None] * 3


def test_nothing_is_stuck_after_the_last_moment_was_forgotten(server: Server, fleet_on: FleetOn) -> None:
    """Power is lost: the file ends in the middle of a command, and what was acknowledged after that never happened."""
    with fleet_on(server.url, max_attempts=100) as fleet:
        children = [*fleet.workers(2, concurrency=16), fleet.sweeper()]
        remembered: list[RunRequest] = []
        for _ in range(ROUNDS):
            runs = work(fleet, 40, 10)
            upto = server.written.stat().st_size
            runs += work(fleet, 20, 5)
            server.kill()
            os.truncate(server.written, upto + 7)
            server.start()
            fleet.reconnect()
            left = known(fleet, runs)
            gone = next(run for run in runs if run not in left)
            for ask in (fleet.dispatcher.get_run, fleet.dispatcher.wait, fleet.dispatcher.cancel):
                with pytest.raises(NotFound, match=gone.run_id):
                    ask(gone.run_id)
            until(lambda left=left: fleet.all_done(left), 40, "every run that is known ends")  # type: ignore[misc]
            remembered += left
        assert history.wrong(fleet, remembered) == []
        later = work(fleet, 10, 10)
        assert history.wrong(fleet, later) == []
        assert [child.process.poll() for child in children] == [None] * 3


def test_a_child_that_dies_while_the_server_is_away_is_taken_back_when_it_returns(
    server: Server, fleet_on: FleetOn
) -> None:
    with fleet_on(server.url, lease_ms=60_000, heartbeat_ms=5_000) as fleet:
        supervisor = fleet.supervised(2)
        run = fleet.submit([{"sleep": 1, "say": "one"}, "two"])
        victim = fleet.alive()[fleet.held(run).worker]
        server.stop()
        os.kill(victim, signal.SIGKILL)
        until(lambda: "trying again" in supervisor.said(), 10, "the supervisor finds no server")
        server.start()
        fleet.reconnect()
        until(lambda: fleet.all_done([run]), 15, "another worker goes on")
        assert fleet.run(run).attempts == 1
        assert history.wrong(fleet, [run]) == []

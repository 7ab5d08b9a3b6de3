"""Who goes on when a worker dies, and how soon; and who must not, while it lives."""

import os
import signal
import time
from typing import Any

from postroom.mailbox import keys
from postroom.mailbox.contracts import RunRequest
from tests.waiting import until
from tests.worker import history
from tests.worker.fleet import LONG, Fleet, FleetOn, percentile, report

ENDLESS: list[Any] = ["begun", {"sleep": 300, "say": "never"}]


def taken_over(fleet: Fleet, victims: dict[str, int], runs: list[RunRequest], within: float) -> list[float]:
    """Kills workers at once and says after how many seconds each run they held was somebody else's."""
    held = {run.run_id: run for run in runs if fleet.held(run).worker in victims}
    killed_at = time.monotonic()
    for pid in victims.values():
        os.kill(pid, signal.SIGKILL)
    times: dict[str, float] = {}

    def moved() -> bool:
        for name, run in held.items():
            who = fleet.holder(run)
            if name not in times and who and who.worker not in victims:
                times[name] = time.monotonic() - killed_at
        return len(times) == len(held)

    until(moved, within, "every run has a new worker", every=0.001)
    return list(times.values())


def test_a_child_that_is_killed_is_replaced_within_a_second(fleet_on: FleetOn, server_url: str) -> None:
    times: list[float] = []
    with fleet_on(server_url, lease_ms=60_000, heartbeat_ms=3_000, max_attempts=10_000) as fleet:
        fleet.supervised(3)
        runs = [fleet.submit(ENDLESS) for _ in range(30)]
        for _ in range(25 if LONG else 2):
            until(lambda: len(fleet.alive()) >= 2, 60, "two workers are up")
            alive = fleet.alive()
            holders = [fleet.held(run).worker for run in runs]
            victim = max(alive, key=holders.count)
            times += taken_over(fleet, {victim: alive[victim]}, runs, 20)
    report("takeover under a supervisor", times)
    assert percentile(times, 0.99) < (1.0 if LONG else 3.0)


def test_a_lost_machine_is_replaced_when_its_lease_ends(fleet: Fleet) -> None:
    times: list[float] = []
    lease = fleet.settings.lease_ms / 1000
    for _ in range(8 if LONG else 1):
        first = fleet.worker()
        runs = [fleet.submit(ENDLESS) for _ in range(10)]
        for run in runs:
            fleet.held(run)
        second = fleet.worker()
        times += taken_over(fleet, {first.title: first.pid}, runs, 30)
        second.kill()
        for run in runs:
            fleet.dispatcher.cancel(run.run_id)
    report(f"takeover of a lost machine, lease {lease:g} s", times)
    assert percentile(times, 0.99) < lease + 2


def test_a_step_longer_than_the_lease_is_left_alone_while_its_worker_lives(fleet: Fleet) -> None:
    fleet.workers(2)
    length = 60 if LONG else 3.5
    run = fleet.submit([{"sleep": length, "say": "at last"}])
    first = fleet.held(run)
    until(lambda: fleet.status(run) == "done", length + 5, "the long step ends")
    assert (fleet.run(run).attempts, fleet.run(run).fence) == (0, first.fence)
    assert history.wrong(fleet, [run]) == []


def test_a_worker_that_was_stopped_past_its_lease_commits_nothing(fleet: Fleet) -> None:
    both = fleet.workers(2)
    run = fleet.submit([{"sleep": 0.5, "say": "one"}, {"sleep": 0.5, "say": "two"}, "three"])
    first = fleet.held(run)
    (sleeper,) = (each for each in both if each.title == first.worker)
    sleeper.signal(signal.SIGSTOP)
    until(lambda: fleet.status(run) == "done", 15, "another worker ends the run")
    assert history.wrong(fleet, [run]) == []
    before = (fleet.run(run).events, fleet.client.xlen(keys.log(run.thread_id)))
    sleeper.signal(signal.SIGCONT)
    until(lambda: "let go" in sleeper.said(), 10, "the old worker notices")
    assert (fleet.run(run).events, fleet.client.xlen(keys.log(run.thread_id))) == before
    assert fleet.run(run).fence > first.fence
    assert history.wrong(fleet, [run]) == []


def test_a_worker_that_was_stopped_goes_on_working(fleet: Fleet) -> None:
    sleeper = fleet.worker()
    fleet.sweeper()
    run = fleet.submit([{"sleep": 0.5, "say": "one"}, "two"])
    fleet.held(run)
    sleeper.signal(signal.SIGSTOP)
    until(lambda: fleet.status(run) == "queued", 15, "the run is taken back")
    sleeper.signal(signal.SIGCONT)
    until(lambda: fleet.status(run) == "done", 3, "the same worker takes it up again, at the first doorbell")
    assert history.wrong(fleet, [run]) == []
    assert sleeper.stop() == 0


def test_everything_a_dead_child_held_is_taken_back_at_once(fleet_on: FleetOn, server_url: str) -> None:
    """More threads than one look takes in: none may be skipped and left to its lease."""
    with fleet_on(server_url, lease_ms=60_000, heartbeat_ms=3_000) as fleet:
        fleet.supervised(2, concurrency=500)
        runs = [fleet.request(ENDLESS) for _ in range(450)]
        fleet.submit_all(runs)
        until(lambda: set(fleet.statuses(runs)) == {"running"}, 20, "all are taken up")
        alive = fleet.alive()
        holders = [fleet.held(run).worker for run in runs]
        victim = max(alive, key=holders.count)
        assert holders.count(victim) > 200
        report("takeover of several hundred runs", taken_over(fleet, {victim: alive[victim]}, runs, 10))

"""Workers that are asked to leave: what they hold is given back, and nobody is charged for it."""

import signal
import time

import pytest

from postroom.mailbox.contracts import RunRequest
from postroom.worker.process import FAREWELL_S
from postroom.worker.supervisor import GRACE_S
from tests.waiting import until
from tests.worker import history
from tests.worker.fleet import Child, Fleet, FleetOn, Server

STUBBORN = "tests.worker.stubborn_app:app"


def told(fleet: Fleet, run_id: str) -> list[str]:
    return [each.event["type"] for each in fleet.dispatcher.events(run_id, live=False)]


def test_the_step_under_way_is_finished_and_the_run_given_back(fleet: Fleet) -> None:
    worker = fleet.worker()
    run = fleet.submit([{"sleep": 1, "say": "one"}, {"sleep": 0.1, "say": "two"}, "three"])
    fleet.held(run)
    assert worker.stop() == 0
    record = fleet.run(run)
    assert (record.status.value, record.step, record.attempts) == ("queued", 1, 0)
    assert told(fleet, run.run_id)[-2:] == ["step_end", "run_requeued"]
    assert fleet.holder(run) is None
    assert not fleet.client.exists(f"postroom:worker:{worker.title}")
    assert not fleet.client.sismember("postroom:workers", worker.title)
    assert not fleet.client.sismember("rq:workers", f"rq:worker:{worker.title}")
    fleet.worker()
    until(lambda: fleet.all_done([run]), 10, "another worker ends the run")
    assert fleet.run(run).attempts == 0
    assert history.wrong(fleet, [run]) == []


def test_a_second_signal_means_now(fleet: Fleet) -> None:
    worker = fleet.worker()
    run = fleet.submit(["one", {"sleep": 300, "say": "never"}])
    until(lambda: fleet.run(run).step == 1, 10, "the long step is under way")
    worker.signal(signal.SIGTERM)
    until(lambda: "takes no more" in worker.said(), 5, "the first signal is heard")
    asked_at = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - asked_at < 3
    record = fleet.run(run)
    assert (record.status.value, record.step, record.attempts) == ("queued", 1, 0)
    assert fleet.client.zcard(f"rq:wip:{fleet.queue}") == 0


def test_a_step_that_does_not_end_in_time_is_given_back_as_it_was(fleet: Fleet) -> None:
    fleet.environ["POSTROOM_DRAIN_MS"] = "500"
    worker = fleet.worker()
    run = fleet.submit(["one", {"sleep": 300, "say": "never"}])
    until(lambda: fleet.run(run).step == 1, 10, "the long step is under way")
    assert worker.stop() == 0
    record = fleet.run(run)
    assert (record.status.value, record.step, record.attempts) == ("queued", 1, 0)
    assert fleet.client.zcard(f"rq:wip:{fleet.queue}") == 0


def in_a_call(fleet: Fleet, agent: str) -> RunRequest:
    """A run of an agent that does not heed anybody, in the middle of its call."""
    run = fleet.submit([], agent=agent)
    until(lambda: "tool_call_start" in told(fleet, run.run_id), 15, f"{agent} is at it")
    return run


def given_back(fleet: Fleet, run: RunRequest, attempts: int = 0) -> bool:
    record = fleet.run(run)
    assert (record.status.value, record.attempts, fleet.holder(run)) == ("queued", attempts, None)
    return bool(fleet.client.zcard(f"rq:wip:{fleet.queue}") == 0)


@pytest.mark.parametrize("agent", ["nap", "doze"])
def test_a_tool_in_a_thread_keeps_nobody_from_leaving_in_time(fleet: Fleet, agent: str) -> None:
    fleet.app, fleet.environ["POSTROOM_DRAIN_MS"] = STUBBORN, "500"
    worker = fleet.worker()
    run = in_a_call(fleet, agent)
    assert worker.stop(0.5 + FAREWELL_S) == 0
    assert given_back(fleet, run)


def test_a_tool_that_swallows_its_cancel_keeps_nobody_from_leaving(fleet: Fleet) -> None:
    fleet.app, fleet.environ["POSTROOM_DRAIN_MS"] = STUBBORN, "500"
    worker = fleet.worker()
    run = in_a_call(fleet, "cling")
    assert worker.stop(0.5 + 2 * FAREWELL_S) == 0
    assert given_back(fleet, run)


def test_a_second_signal_means_now_for_a_tool_in_a_thread_too(fleet: Fleet) -> None:
    fleet.app = STUBBORN
    worker = fleet.worker()
    run = in_a_call(fleet, "nap")
    worker.signal(signal.SIGTERM)
    until(lambda: "takes no more" in worker.said(), 5, "the first signal is heard")
    assert worker.stop(FAREWELL_S) == 0
    assert given_back(fleet, run)


def test_a_child_that_does_not_leave_is_killed_and_what_it_held_taken_back(fleet: Fleet) -> None:
    fleet.app, fleet.environ["POSTROOM_DRAIN_MS"] = STUBBORN, "500"
    fleet.environ["POSTROOM_LEASE_MS"] = "60000"  # a lease that ends earlier would be for the next sweeper
    supervisor = fleet.supervised(2)
    run = in_a_call(fleet, "hog")
    fleet.held(run)
    assert supervisor.stop(0.5 + GRACE_S + 5) == 1
    assert "has not left in time and is killed" in supervisor.said()
    assert fleet.alive() == {}
    assert given_back(fleet, run, attempts=1), "as for any worker that died"


def test_a_supervisor_passes_a_second_signal_on(fleet: Fleet) -> None:
    fleet.app = STUBBORN
    supervisor = fleet.supervised(2)
    runs = [in_a_call(fleet, "nap") for _ in range(2)]
    supervisor.signal(signal.SIGTERM)
    until(lambda: supervisor.said().count("takes no more") == 2, 5, "the first signal is heard")
    assert supervisor.stop(FAREWELL_S) == 0
    assert all(given_back(fleet, run) for run in runs)


def test_a_supervisor_passes_it_on(fleet: Fleet) -> None:
    supervisor = fleet.supervised(2)
    runs = [fleet.submit([{"sleep": 1, "say": "one"}, "two"]) for _ in range(6)]
    for run in runs:
        fleet.held(run)
    assert supervisor.stop() == 0
    assert fleet.alive() == {}
    assert [(fleet.run(run).status.value, fleet.run(run).attempts) for run in runs] == [("queued", 0)] * 6


def test_a_rolling_deploy_is_not_noticed(fleet: Fleet) -> None:
    old = fleet.workers(3, concurrency=8)
    gone: list[Child] = []
    runs = []
    for worker in old:
        fleet.workers(1, concurrency=8)
        runs += [fleet.submit([{"sleep": 0.1, "say": f"{i}.{n}"} for n in range(4)]) for i in range(30)]
        fleet.held(runs[-1], 15)
        worker.signal(signal.SIGTERM)
        gone.append(worker)
    assert [worker.exit_code(15) for worker in gone] == [0, 0, 0]
    until(lambda: fleet.all_done(runs), 20, "all are done")
    assert {fleet.run(run).attempts for run in runs} == {0}
    assert history.wrong(fleet, runs) == []
    assert not [worker.title for worker in fleet.children if "ERROR" in worker.said() or "Traceback" in worker.said()]


def test_a_server_that_hangs_keeps_nobody_from_leaving(server: Server, fleet_on: FleetOn) -> None:
    with fleet_on(server.url, drain_ms=200) as fleet:
        worker = fleet.worker()
        fleet.held(fleet.submit(["one", {"sleep": 300, "say": "never"}]))
        assert server.process
        server.process.send_signal(signal.SIGSTOP)
        try:
            worker.signal(signal.SIGTERM)
            worker.exit_code(20)
        finally:
            server.process.send_signal(signal.SIGCONT)


def test_doorbells_taken_while_leaving_are_put_back(fleet: Fleet) -> None:
    """Under load a worker often has doorbells on their way to it when it is told to stop."""
    old = fleet.worker(concurrency=256)
    runs = [fleet.request(["one"]) for _ in range(2_000)]
    fleet.submit_all(runs)
    until(lambda: "done" in fleet.statuses(runs), 10, "the work has begun", every=0.001)
    assert old.stop() == 0
    assert fleet.client.zcard(f"rq:wip:{fleet.queue}") == 0
    left = [run for run, status in zip(runs, fleet.statuses(runs), strict=True) if status != "done"]
    assert fleet.client.llen(f"rq:queue:{fleet.queue}") == len(left) > 0
    fleet.worker(concurrency=256)
    until(lambda: fleet.all_done(runs), 20, "another worker does the rest")
    assert {fleet.run(run).attempts for run in left} == {0}

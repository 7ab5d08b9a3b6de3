"""A cancel reaches a run wherever it is, and the flag in Redis wins even when nobody hears the call."""

import time
from typing import Any

from postroom.mailbox import keys, lane
from postroom.mailbox.contracts import RunRequest
from tests.waiting import until
from tests.worker.fleet import LONG, Fleet, percentile, report

ENDLESS: list[Any] = ["begun", {"sleep": 300, "say": "never"}]


def ended(fleet: Fleet, run: RunRequest) -> dict[str, Any]:
    """The one terminal event of a run."""
    events = [each.event for each in fleet.dispatcher.events(run.run_id, live=False)]
    (terminal,) = [event for event in events if event["type"] == "run_finish"]
    assert events[-1] == terminal
    return terminal


def begun(fleet: Fleet) -> RunRequest:
    run = fleet.submit(ENDLESS)
    until(lambda: fleet.run(run).step == 1, 10, "the first step is committed")
    return run


def test_a_queued_run_ends_on_the_spot(fleet: Fleet) -> None:
    first = fleet.submit(ENDLESS)
    second = fleet.submit(["never"], first.thread_id)
    assert fleet.dispatcher.cancel(second.run_id).outcome == "cancelled"
    assert ended(fleet, second)["termination"] == "cancelled"
    assert fleet.dispatcher.cancel(first.run_id).outcome == "cancelled"
    fleet.worker()
    third = fleet.submit(["said"], first.thread_id)
    until(lambda: fleet.status(third) == "done", 10, "the thread goes on")
    assert [each.run for each in fleet.dispatcher.messages(first.thread_id)] == [third.run_id] * 2


def test_a_running_run_stops_at_once(fleet: Fleet) -> None:
    fleet.workers(2)
    times = []
    for _ in range(200 if LONG else 10):
        run = begun(fleet)
        asked_at = time.monotonic()
        assert fleet.dispatcher.cancel(run.run_id).outcome == "requested"
        until(lambda run=run: fleet.status(run) == "done", 10, "the run stops", every=0.001)  # type: ignore[misc]
        times.append(time.monotonic() - asked_at)
        assert ended(fleet, run)["termination"] == "cancelled"
        assert fleet.holder(run) is None
    report("cancel of a running run", times)
    assert percentile(times, 0.5) < 0.25


def test_a_waiting_run_ends_on_the_spot_and_its_call_is_answered(fleet: Fleet) -> None:
    fleet.worker()
    run = fleet.submit([{"ask": "may I?"}, "never"])
    until(lambda: fleet.status(run) == "waiting", 10, "the run waits")
    assert fleet.dispatcher.cancel(run.run_id).outcome == "cancelled"
    assert ended(fleet, run)["termination"] == "cancelled"
    roles = [each.message["role"] for each in fleet.dispatcher.messages(run.thread_id)]
    assert roles == ["user", "assistant", "tool"]


def test_the_flag_wins_when_the_message_is_lost(fleet: Fleet) -> None:
    worker = fleet.worker()
    channel = keys.control(worker.title)
    run = begun(fleet)
    until(lambda: fleet.client.pubsub_numsub(channel)[0][1] == 1, 10, "the worker listens")
    asked_at = time.monotonic()
    # In one transaction, or the worker may listen again before the message is sent.
    with fleet.client.pipeline() as pipe:
        pipe.client_kill_filter(_type="pubsub")
        pipe.execute_command(*lane.cancel(run.thread_id, run.run_id).command)
        pipe.pubsub_numsub(channel)
        _, (outcome, *_), listening = pipe.execute()
    assert outcome == b"requested"
    assert listening[0][1] == 0, "somebody may have heard it"
    until(lambda: fleet.status(run) == "done", 10, "the run stops")
    assert time.monotonic() - asked_at < fleet.settings.heartbeat_ms / 1000 + 1
    assert ended(fleet, run)["termination"] == "cancelled"
    until(lambda: fleet.client.pubsub_numsub(channel)[0][1] == 1, 10, "the worker listens again")


def test_a_cancel_of_a_run_whose_worker_died_ends_it(fleet: Fleet) -> None:
    worker = fleet.worker()
    run = begun(fleet)
    worker.kill()
    assert fleet.dispatcher.cancel(run.run_id).outcome == "requested"
    fleet.sweeper()
    until(lambda: fleet.status(run) == "done", 15, "the sweep ends it")
    assert ended(fleet, run)["termination"] == "cancelled"

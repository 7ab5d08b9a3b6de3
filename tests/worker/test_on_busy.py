"""Fifty submitters at once on one thread, each over a connection of its own, in each of the five modes."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from postroom.dispatcher import AsyncDispatcher
from postroom.mailbox.contracts import RunRequest
from postroom.mailbox.errors import ThreadBusy
from postroom.mailbox.lane import Submitted
from tests.waiting import until
from tests.worker import history
from tests.worker.fleet import Fleet

SUBMITTERS = 50


async def _submit_at_once(fleet: Fleet, requests: list[RunRequest]) -> list[Any]:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncDispatcher(fleet.url, fleet.settings)) for _ in requests]
        pairs = zip(clients, requests, strict=True)
        replies = await asyncio.gather(*(client.submit_many([request]) for client, request in pairs))
    return [outcome for (outcome,) in replies]


def submit_at_once(fleet: Fleet, thread: str, mode: str, script: list[Any]) -> tuple[list[RunRequest], list[Any]]:
    requests = [fleet.request(script, thread, on_busy=mode) for _ in range(SUBMITTERS)]
    return requests, asyncio.run(_submit_at_once(fleet, requests))


def endings(fleet: Fleet, runs: list[RunRequest]) -> Counter[str]:
    """How the runs ended, one terminal event each."""
    found: Counter[str] = Counter()
    for run in runs:
        (terminal,) = [
            each.event for each in fleet.dispatcher.events(run.run_id, live=False) if each.event["type"] == "run_finish"
        ]
        found[terminal["termination"]] += 1
    return found


def test_enqueue_gives_each_its_turn(fleet: Fleet) -> None:
    fleet.workers(2)
    runs, outcomes = submit_at_once(fleet, fleet.thread(), "enqueue", ["one", "two"])
    assert {outcome.outcome for outcome in outcomes} == {"queued"}
    until(lambda: fleet.all_done(runs), 20, "all are done")
    order = dict.fromkeys(each.run for each in fleet.dispatcher.messages(runs[0].thread_id))
    assert history.wrong(fleet, sorted(runs, key=lambda run: list(order).index(run.run_id))) == []


def test_reject_lets_one_in(fleet: Fleet) -> None:
    fleet.workers(2)
    runs, outcomes = submit_at_once(fleet, fleet.thread(), "reject", [{"sleep": 1, "say": "me"}])
    (winner,) = [run for run, outcome in zip(runs, outcomes, strict=True) if isinstance(outcome, Submitted)]
    refused = [outcome for outcome in outcomes if not isinstance(outcome, Submitted)]
    assert all(isinstance(error, ThreadBusy) and winner.run_id in error.message for error in refused)
    until(lambda: fleet.all_done([winner]), 10, "the winner is done")
    assert history.wrong(fleet, [winner]) == []


@pytest.mark.parametrize("mode", ["interrupt", "rollback"])
def test_only_the_last_comes_through(fleet: Fleet, mode: str) -> None:
    fleet.workers(2)
    first = fleet.submit([{"sleep": 300, "say": "never"}])
    fleet.held(first)
    runs, outcomes = submit_at_once(fleet, first.thread_id, mode, [{"sleep": 1.5, "say": "me"}])
    assert {outcome.outcome for outcome in outcomes} == {"queued"}
    until(lambda: fleet.all_done([first, *runs]), 20, "all are done")
    last = max(runs, key=lambda run: fleet.run(run).epoch)
    assert len({fleet.run(run).epoch for run in runs}) == SUBMITTERS
    assert endings(fleet, [last]) == {"natural_end": 1}
    assert endings(fleet, [first, *(run for run in runs if run is not last)]) == {"cancelled": SUBMITTERS}
    if mode == "rollback":
        assert {each.run for each in fleet.dispatcher.messages(first.thread_id)} == {last.run_id}
    until(lambda: not list(history.left(fleet, first.thread_id)), 5, "nothing is left over")


def test_steer_reaches_the_running_run(fleet: Fleet) -> None:
    fleet.workers(2)
    first = fleet.submit([{"sleep": 1.5, "say": "one"}, "two"])
    fleet.held(first)
    runs, outcomes = submit_at_once(fleet, first.thread_id, "steer", ["never"])
    assert {(outcome.outcome, outcome.run_id) for outcome in outcomes} == {("steered", first.run_id)}
    until(lambda: fleet.all_done([first]), 10, "the run is done")
    log = fleet.dispatcher.messages(first.thread_id)
    heard = Counter(each.message["content"][0]["text"] for each in log if each.message["role"] == "user")
    assert heard == Counter(message.text for run in (first, *runs) for message in run.messages)
    assert {each.run for each in log} == {first.run_id}
    assert not list(history.left(fleet, first.thread_id))

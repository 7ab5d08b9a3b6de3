"""Agents that work together while their workers are killed: nothing is lost, nothing happens twice."""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from postroom.mailbox import keys, ops
from postroom.mailbox.ops import Op
from tests.waiting import until
from tests.worker.fleet import LONG, Fleet, FleetOn, Server, report
from tests.worker.loop.office import text

MESSAGES, THREADS, PROCESSES, WITHIN = (10_000, 100, 4, 1800.0) if LONG else (1_000, 30, 2, 240.0)
CHILDREN = 100 if LONG else 20
# A quick machine is through with the short version in a few seconds, and must have met its kills by then.
FIRST_KILL, KILL_EVERY = (0.3, 1.0) if LONG else (0.1, 0.5)
APP = "tests.worker.together.chaos_app:app"
PATIENT = {"max_attempts": 100_000}


@pytest.fixture
def own(server: Server, fleet_on: FleetOn) -> Iterator[Fleet]:
    """A fleet on a server of its own: others must not meet the workers that are killed here."""
    with fleet_on(server.url) as fleet:
        fleet.app = APP
        yield fleet


class Fire:
    """Kills a random worker every so often."""

    def __init__(self, fleet: Fleet, chance: random.Random) -> None:
        self.fleet, self.chance, self.kills = fleet, chance, 0
        self.next_kill = time.monotonic() + FIRST_KILL

    def __call__(self) -> None:
        if time.monotonic() < self.next_kill:
            return
        alive = self.fleet.alive()
        if alive:
            with suppress(ProcessLookupError):
                os.kill(alive[self.chance.choice(sorted(alive))], signal.SIGKILL)
                self.kills += 1
        self.next_kill = time.monotonic() + KILL_EVERY


def idle(fleet: Fleet, threads: list[str]) -> bool:
    """Whether nothing is left to do, to read or to deliver on any of these threads."""
    asked: list[Op[bool]] = []
    for thread in threads:
        # What a thread owes comes first: it may be on its way to one that was looked at before.
        asked.append(Op(("EXISTS", keys.outbox(thread), keys.lane(thread), keys.mailbox(thread)), lambda n: n == 0))
        asked.append(Op(("HGET", keys.thread(thread), "open"), lambda open_run: not open_run))
    return all(ops.run_all(fleet.client, asked))


def test_every_message_is_in_one_place_once_and_in_order(server: Server, fleet_on: FleetOn) -> None:
    chance = random.Random(7)
    with fleet_on(server.url, **PATIENT) as fleet:
        fleet.app = APP
        fleet.supervised(PROCESSES, verb="up", concurrency=16)
        threads = [fleet.thread() for _ in range(THREADS)]
        plans: dict[str, list[tuple[str, str]]] = {thread: [] for thread in threads}
        for number in range(MESSAGES):
            sender, recipient = chance.sample(threads, 2)
            plans[sender].append((recipient, json.dumps({"from": sender, "n": number})))
        # Everybody is there before anybody writes.
        for thread in threads:
            fleet.dispatcher.submit("postman", "hello", thread=thread, queue=fleet.queue)
        until(lambda: idle(fleet, threads), 60, "everybody has said hello", every=0.1)
        began = time.monotonic()
        runs = [
            fleet.dispatcher.submit("postman", json.dumps({"send": plan}), thread=thread, queue=fleet.queue).run_id
            for thread, plan in plans.items()
        ]
        fire = Fire(fleet, chance)

        def quiet() -> bool:
            fire()
            return idle(fleet, threads) and all(fleet.dispatcher.get_run(run).status == "done" for run in runs)

        until(quiet, WITHIN, "every message has been read", every=0.1)
        report(f"{MESSAGES} messages among {THREADS} threads, {fire.kills} kills", [time.monotonic() - began])
        assert fire.kills > 3
        found: Counter[tuple[str, str]] = Counter()
        for thread in threads:
            last: dict[str, int] = {}
            for entry in fleet.dispatcher.messages(thread, raw=True):
                words = text(entry.message)
                if entry.message["role"] == "user" and words.startswith('{"from"'):
                    found[thread, words] += 1
                    told = json.loads(words)
                    assert last.get(told["from"], -1) < told["n"], "two of one sender came in the wrong order"
                    last[told["from"]] = told["n"]
            assert fleet.dispatcher.list_lost(thread) == []
        assert found == Counter(each for plan in plans.values() for each in plan)


def test_a_fan_out_survives_its_workers(server: Server, fleet_on: FleetOn) -> None:
    chance = random.Random(11)
    with fleet_on(server.url, **PATIENT) as fleet:
        fleet.app = APP
        fleet.supervised(PROCESSES, verb="up", concurrency=2)
        thread = fleet.thread()
        began = time.monotonic()
        run = fleet.dispatcher.submit("boss", str(CHILDREN), thread=thread, queue=fleet.queue).run_id
        fire = Fire(fleet, chance)

        def over() -> bool:
            fire()
            return fleet.dispatcher.get_run(run).status == "done"

        until(over, WITHIN, "the boss has all answers", every=0.05)
        assert fire.kills
        report(f"{CHILDREN} delegates, {fire.kills} kills", [time.monotonic() - began])
        record = fleet.dispatcher.get_run(run)
        assert record.termination
        assert record.termination.kind == "natural_end"
        results = [json.loads(text(entry.message)) for entry in fleet.dispatcher.messages(thread) if _is_result(entry)]
        assert [result["response"] for result in results] == [f"did part {i}" for i in range(CHILDREN)]
        children = {_child(entry) for entry in fleet.dispatcher.messages(thread) if _is_result(entry)}
        assert len(children) == CHILDREN
        for child in children:
            ends = [entry.event for entry in fleet.dispatcher.events(child, live=False)]
            assert [event["type"] for event in ends].count("run_finish") == 1
        assert record.usage.output_tokens == 5 * (CHILDREN + 2)


def _is_result(entry: Any) -> bool:
    return bool(entry.message["role"] == "tool")


def _child(entry: Any) -> str:
    return str(entry.message["metadata"]["child_run_id"])


def test_a_child_may_wait_for_a_person_longer_than_any_lease(own: Fleet) -> None:
    first = own.worker()
    run = own.dispatcher.submit("manager", "please", thread=own.thread(), queue=own.queue).run_id
    child = until(lambda: _asking(own, run), 20, "the child asks")
    # The time a lease lasts is what this is about, so it has to pass.
    passed = time.monotonic() + 2.5 * own.settings.lease_ms / 1000
    until(lambda: time.monotonic() > passed, 30, "every lease would be over", every=0.1)
    first.kill()
    own.worker()
    parent, waiting = own.dispatcher.get_run(run), own.dispatcher.get_run(child)
    assert (parent.status, parent.waiting, waiting.status, waiting.waiting) == (
        "waiting",
        "tasks",
        "waiting",
        "approval",
    )
    assert (parent.attempts, waiting.attempts) == (0, 0)
    (call,) = own.dispatcher.calls(child)
    own.dispatcher.decide(child, call.call_id, "allow_once", by="ann")
    until(lambda: own.dispatcher.get_run(run).status == "done", 20, "the parent has its answer")
    assert [text(entry.message) for entry in own.dispatcher.messages(parent.thread_id)][-1] == "Passed on."


def _asking(fleet: Fleet, run: str) -> str:
    """The child that waits for a person, as the parent's followers are told."""
    for entry in fleet.dispatcher.events(run, live=False):
        if entry.event["type"] == "child_event" and entry.event["event"]["type"] == "run_waiting":
            return str(entry.event["child_run_id"])
    return ""


def test_a_cancel_of_three_levels_leaves_nothing_running(own: Fleet) -> None:
    own.workers(2)
    run = own.dispatcher.submit("a0", "go", thread=own.thread(), queue=own.queue).run_id

    def at_the_bottom() -> bool:
        below = own.dispatcher.descendants(run)
        return len(below) == 3 and below[-1].status == "running"

    until(at_the_bottom, 20, "the last one is at work")
    below = own.dispatcher.descendants(run)
    own.dispatcher.cancel(run)
    everybody = [run, *(each.run_id for each in below)]

    def stopped() -> bool:
        return all(own.dispatcher.get_run(each).status == "done" for each in everybody)

    until(stopped, 20, "everybody has stopped")
    for each in everybody:
        record = own.dispatcher.get_run(each)
        assert record.termination
        assert record.termination.kind == "cancelled"
        assert own.dispatcher.holder(record.thread_id) is None
    until(lambda: idle(own, [own.dispatcher.get_run(each).thread_id for each in everybody]), 10, "nothing is left")

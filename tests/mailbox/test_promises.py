"""Random interleavings of workers, clients, lost replies and clock jumps, on a real server, against the model.

Checked after every step: one writer (1), accepted means durable (2), a step commits whole or not at all (3), exactly
one terminal event (6), never busy without a live lock or a place on the watch list (7).
"""

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from postroom.mailbox import approvals, commit, inbox, journal, keys, lane, lock, log, ops, watch
from postroom.mailbox.commit import Batch, Owner
from postroom.mailbox.contracts import Decision, Letter, RunRequest, Termination, message, parse
from postroom.mailbox.errors import NothingToDo, PostroomError
from postroom.mailbox.lifecycle import TerminationKind, WaitingReason
from postroom.mailbox.settings import Settings
from tests.mailbox.model import Thread

T = TypeVar("T")
# Long enough that the lock key never really expires, however slow the machine: the clock here is only said.
LEASE = 600_000
WORKERS = ["w1", "w2", "w3"]


@dataclass
class Belief:
    """What some worker holds for true about its activation; it may be out of date."""

    thread: str
    run: str
    fence: int
    next_number: int
    worker: str


class Fleet(RuleBasedStateMachine):
    """Two threads, three workers, any order of events."""

    client: Any

    def __init__(self) -> None:
        super().__init__()
        # A queue of its own: how many doorbells lie in front decides when somebody looks.
        self.queue = f"q-{uuid.uuid4().hex}"
        self.tag = uuid.uuid4().hex[:10]
        self.threads = {f"t {self.tag} {i}": Thread() for i in range(2)}
        self.beliefs: list[Belief] = []
        self.tags: dict[str, list[str]] = {thread: [] for thread in self.threads}
        self.read: dict[str, list[str]] = {thread: [] for thread in self.threads}
        self.decided: set[str] = set()
        self.count = 0
        self.now = int(time.time() * 1000)

    # -- how verbs are called ----------------------------------------------------------------------------------------

    def ask(self, op: ops.Op[T], again: bool = False) -> T | str:
        """The verb's value, or its error's code; `again` loses the first reply and asks a second time."""
        if again:
            self._once(op)
        return self._once(op)

    def _once(self, op: ops.Op[T]) -> T | str:
        try:
            return ops.run(self.client, op)
        except PostroomError as error:
            return error.code

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}-{self.tag}-{self.count}"

    def model(self, thread: str) -> Thread:
        model = self.threads[thread]
        model.now = self.now
        return model

    def started_for_mail(self, thread: str, bell: Any) -> None:
        """If mail was left without a reader, the scripts must have started one and told so."""
        model = self.threads[thread]
        if model.needs_mail_run:
            assert bell is not None, "mail is left without a run to read it"
            model.mail_run(bell.run_id)

    # -- what may happen -----------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        for thread in self.threads:
            self.submit(thread, "enqueue", "supersede", 128, None, False)

    threads_ = st.integers(0, 1)

    def pick(self, index: int | str) -> str:
        return index if isinstance(index, str) else list(self.threads)[index]

    @rule(
        where=threads_,
        mode=st.sampled_from(["enqueue", "enqueue", "reject", "interrupt", "steer", "rollback"]),
        on_waiting=st.sampled_from(["supersede", "enqueue", "reject"]),
        priority=st.sampled_from([0, 128, 255]),
        delay=st.none() | st.sampled_from([1, 500, 3000]),
        again=st.booleans(),
    )
    def submit(
        self, where: int | str, mode: str, on_waiting: str, priority: int, delay: int | None, again: bool
    ) -> None:
        thread, run = self.pick(where), self.fresh("r")
        start_at = self.now + delay if delay and mode == "enqueue" else None
        fields: dict[str, Any] = {"run_id": run, "thread_id": thread, "on_busy": mode, "on_waiting": on_waiting}
        fields |= {"priority": priority, "start_at": start_at, "agent": "clerk", "messages": (message("user", run),)}
        model = self.model(thread)
        expected = model.submit(run, mode, on_waiting, priority, start_at)
        if expected == "steered":
            model.send(f"steer:{run}.0")
        found = self.ask(lane.submit(parse(RunRequest, {**fields, "queue": self.queue}), Settings(), self.now), again)
        outcome = found if isinstance(found, str) else found.outcome
        assert outcome == ("again" if again and expected not in {"thread_busy"} else expected)

    @rule(
        where=threads_,
        worker=st.sampled_from(WORKERS),
        which=st.integers(0, 20),
        head=st.sampled_from([True, True, True, False]),
        again=st.booleans(),
    )
    def claim(self, where: int, worker: str, which: int, head: bool, again: bool) -> None:
        thread = self.pick(where)
        model = self.model(thread)
        names = list(model.runs)
        run = names[which % len(names)]
        if head:
            run = model.open or (model.lane or [run])[0]
        expected = model.claim(run, worker, LEASE)
        found = self.ask(lock.claim(thread, run, worker, LEASE, self.fresh("a"), self.now), again)
        if not expected:
            assert found == NothingToDo.code
            return
        assert not isinstance(found, str)
        assert found.fence == model.fence
        assert [mail.id for mail in found.mail] == model.mail
        self.beliefs.append(Belief(thread, run, found.fence, int(found.run["commits"]) + 1, worker))

    def batch(self, belief: Belief, read: bool, tag: str) -> tuple[Batch, list[str]]:
        """A step that leaves its tag in every kind of key, and reads all mail there is."""
        model = self.threads[belief.thread]
        unread = [each for each in self.mails(belief.thread) if each.id in model.mail] if read else []
        batch = Batch(belief.next_number, step=belief.next_number)
        batch.say(message("assistant", tag).as_dict()).tell({"type": "text_delta", "delta": tag})
        batch.run_state[tag] = batch.thread_state[tag] = b"1"
        for mail in unread:
            batch.read(mail.number)
        return batch, [mail.id for mail in unread]

    def mails(self, thread: str) -> list[inbox.Mail]:
        return ops.run(self.client, inbox.unread(thread, 10_000))

    def settle(self, belief: Belief, outcome: str, tag: str, read: list[str], grew: bool) -> None:
        """What an accepted step leaves behind in the model and in the worker's belief."""
        if grew:
            self.tags[belief.thread].append(tag)
            self.read[belief.thread] += read
            belief.next_number += 1

    def write(
        self,
        belief: Belief,
        read: bool,
        again: bool,
        verb: Callable[[Owner, Batch], ops.Op[commit.Arrivals]],
        predict: Callable[[Thread], str],
    ) -> None:
        model, tag = self.model(belief.thread), self.fresh("tag")
        batch, ids = self.batch(belief, read, tag)
        before = model.runs[belief.run].commits
        unread = list(model.mail)
        if model.owns(belief.run, belief.fence) and before + 1 == belief.next_number:
            model.mail = [mail for mail in model.mail if mail not in ids]
        expected = predict(model)
        grew = model.runs[belief.run].commits > before
        if not grew:
            model.mail = unread
        found = self.ask(verb(Owner(belief.thread, belief.run, belief.fence), batch), again)
        outcome = found if isinstance(found, str) else found.outcome
        if grew and again:
            expected = "continue" if expected == "continue" else "again"
        assert outcome == expected
        self.settle(belief, outcome, tag, ids, grew)
        if not model.open and grew:
            bell = None if isinstance(found, str) else found.doorbell
            # The lost reply carried the doorbell, so a repeated call finds the mail's run in the lane instead.
            self.adopt_mail_run(belief.thread) if again else self.started_for_mail(belief.thread, bell)

    def adopt_mail_run(self, thread: str) -> None:
        model = self.threads[thread]
        if model.needs_mail_run:
            (run,) = self.client.zrange(keys.lane(thread), 0, -1)
            model.mail_run(run.decode())

    pick_belief = st.sampled_from([0, 0, 0, 0, 0, 1, 2, 7, 30])

    def belief(self, index: int) -> Belief:
        # Mostly the youngest beliefs, sometimes a very old one.
        return self.beliefs[-1 - index % len(self.beliefs)]

    @rule(where=threads_, worker=st.sampled_from(WORKERS), read=st.booleans(), again=st.booleans())
    def claim_and_commit(self, where: int, worker: str, read: bool, again: bool) -> None:
        self.claim(where, worker, 0, True, again)
        if self.beliefs:
            self.commit(0, read, again)

    @precondition(lambda self: self.beliefs)
    @rule(index=pick_belief, read=st.booleans(), again=st.booleans())
    def commit(self, index: int, read: bool, again: bool) -> None:
        belief = self.belief(index)
        number = belief.next_number
        self.write(
            belief,
            read,
            again,
            lambda owner, batch: commit.commit(owner, batch, self.now),
            lambda model: model.commit(belief.run, belief.fence, number),
        )

    @precondition(lambda self: self.beliefs)
    @rule(
        index=pick_belief,
        kind=st.sampled_from(["natural_end", "natural_end", "error", "cancelled"]),
        read=st.booleans(),
        again=st.booleans(),
    )
    def finish(self, index: int, kind: str, read: bool, again: bool) -> None:
        belief = self.belief(index)
        number = belief.next_number
        how = Termination(kind=TerminationKind(kind))
        self.write(
            belief,
            read,
            again,
            lambda owner, batch: commit.finish(owner, batch, how, now=self.now),
            lambda model: model.finish(belief.run, belief.fence, number, kind),
        )

    @precondition(lambda self: self.beliefs)
    @rule(
        index=pick_belief,
        reason=st.sampled_from(["input", "tasks", "time", "manual", "approval"]),
        read=st.booleans(),
        again=st.booleans(),
    )
    def suspend(self, index: int, reason: str, read: bool, again: bool) -> None:
        belief = self.belief(index)
        number = belief.next_number
        wake = self.now + 2000 if reason == "time" else None
        ticket = reason == "approval" and not self.threads[belief.thread].runs[belief.run].ticket

        def verb(owner: Owner, batch: Batch) -> ops.Op[commit.Arrivals]:
            if ticket:
                batch.raise_ticket("c", {"id": "k", "call_id": "c", "tool": "pay"})
            return commit.suspend(owner, batch, WaitingReason(reason), wake, now=self.now)

        self.write(
            belief,
            read,
            again,
            verb,
            lambda model: model.suspend(belief.run, belief.fence, number, reason, wake, ticket),
        )

    @precondition(lambda self: self.beliefs)
    @rule(index=pick_belief, again=st.booleans())
    def release(self, index: int, again: bool) -> None:
        belief = self.belief(index)
        model = self.model(belief.thread)
        expected = model.release(belief.run, belief.fence)
        found = self.ask(lock.release(belief.thread, belief.run, belief.fence, "drain", now=self.now), again)
        outcome = found if isinstance(found, str) else found.outcome
        assert outcome == ("again" if again and expected in {"queued", "done"} else expected)
        if expected == "done":
            if again or isinstance(found, str):
                self.adopt_mail_run(belief.thread)
            else:
                self.started_for_mail(belief.thread, found.doorbell)

    @precondition(lambda self: self.beliefs)
    @rule(index=pick_belief)
    def renew(self, index: int) -> None:
        belief = self.belief(index)
        expected = self.model(belief.thread).renew(belief.run, belief.fence, LEASE)
        found = self.ask(lock.renew(belief.thread, belief.run, belief.fence, LEASE, self.now))
        assert (not isinstance(found, str)) is expected

    @rule(where=threads_, which=st.integers(0, 20), again=st.booleans())
    def cancel(self, where: int, which: int, again: bool) -> None:
        thread = self.pick(where)
        model = self.model(thread)
        left = [name for name, each in model.runs.items() if each.status != "done"]
        names = left if left and which % 4 else list(model.runs)
        run = names[which % len(names)]
        expected = model.cancel(run)
        found = self.ask(lane.cancel(thread, run, now=self.now), again)
        assert not isinstance(found, str)
        assert found.outcome == ("done" if again and expected == "cancelled" else expected)
        if expected == "cancelled":
            self.adopt_mail_run(thread)

    @rule(where=threads_, really=st.sampled_from([False, False, True]))
    def interrupt(self, where: int, really: bool) -> None:
        if not really:
            return
        thread = self.pick(where)
        self.model(thread).interrupt("interrupted")
        found = self.ask(lane.interrupt(thread, now=self.now))
        assert not isinstance(found, str)
        self.started_for_mail(thread, found.doorbell)

    @precondition(lambda self: any(run.ticket for model in self.threads.values() for run in model.runs.values()))
    @rule(where=threads_, which=st.integers(0, 20), again=st.booleans())
    def decide(self, where: int, which: int, again: bool) -> None:
        thread = self.pick(where)
        model = self.model(thread)
        asked = [name for name, each in model.runs.items() if each.ticket] or list(model.runs)
        run = asked[which % len(asked)]
        decision = Decision(id=self.fresh("d"), target="k", action="allow_once")
        expected = model.decide(run, False)
        found = self.ask(approvals.decide(thread, run, [decision], now=self.now), again)
        outcome = found if isinstance(found, str) else found.outcome
        assert outcome == ("again" if again and expected == "accepted" else expected)

    @rule(where=threads_, again=st.booleans())
    def send(self, where: int, again: bool) -> None:
        thread, mail_id = self.pick(where), self.fresh("m")
        model = self.model(thread)
        idle = not model.open and not model.lane
        model.send(mail_id)
        letter = Letter(id=mail_id, thread_id=thread, message=message("user", mail_id), agent="clerk", queue=self.queue)
        found = self.ask(inbox.send(letter, Settings(), self.now), again)
        assert not isinstance(found, str)
        assert found.outcome == ("again" if again else "accepted")
        if idle:
            model.mail_run(found.run_id)

    @rule(where=threads_, dead=st.sampled_from(["", "", *WORKERS]), again=st.booleans())
    def look(self, where: int, dead: str, again: bool) -> None:
        thread = self.pick(where)
        expected = self.model(thread).look(dead)
        found = self.ask(watch.reclaim(thread, 5, dead, self.now), again)
        assert not isinstance(found, str)
        assert found.dead == ("" if again else expected)
        if again:
            self.adopt_mail_run(thread)
        else:
            self.started_for_mail(thread, found.doorbell)

    @rule(by=st.sampled_from([1, 1, 400, 400, LEASE, LEASE + 1, 6000]))
    def time_passes(self, by: int) -> None:
        self.now += by

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def the_promises_hold(self) -> None:
        for thread, model in self.threads.items():
            model.now = self.now
            seen = See(self.client, thread, list(model.runs))
            redis_agrees_with_the_model(seen, model)
            one_writer_and_a_lock_that_says_who(seen, model)
            accepted_means_durable(seen, model, self.read[thread])
            steps_commit_whole_or_not_at_all(seen, self.tags[thread])
            exactly_one_terminal_event(seen, model)
            never_busy_and_forgotten(seen, model)

    def teardown(self) -> None:
        for thread in self.threads:
            runs = list(self.threads[thread].runs)
            mine = [keys.thread, keys.lock, keys.lane, keys.timers, keys.log, keys.mailbox, keys.thread_state]
            of_run = [keys.run, keys.calls, keys.run_state, keys.events]
            gone = [name(thread) for name in mine] + [name(thread, run) for run in runs for name in of_run]
            self.client.delete(*gone, *(keys.run_index(run) for run in runs))
            self.client.zrem(keys.WATCH, thread)


class See:
    """All of a thread, read in one round trip."""

    def __init__(self, client: redis.Redis, thread: str, runs: list[str]) -> None:
        reads: list[ops.Op[Any]] = [
            ops.Op(("HGETALL", keys.thread(thread)), ops.hash_fields),
            ops.Op(("ZRANGE", keys.lane(thread), 0, -1), _texts),
            lock.holder(thread),
            inbox.unread(thread, 10_000),
            log.read(thread, 0, 10_000),
            ops.Op(("HKEYS", keys.thread_state(thread)), _texts),
            ops.Op(("ZSCORE", keys.WATCH, thread), lambda reply: reply),
        ]
        for run in runs:
            reads += [
                ops.Op(("HMGET", keys.run(thread, run), "status", "cancel", "commits"), _texts),
                ops.Op(("HKEYS", keys.run_state(thread, run)), _texts),
                journal.read(thread, run, 0, 10_000),
            ]
        found = ops.run_all(client, reads)
        self.thread, self.lane, self.holder, self.mail, self.log, self.state, self.watched = found[:7]
        self.runs = {run: found[7 + 3 * i] for i, run in enumerate(runs)}
        self.run_state = [name for i in range(len(runs)) for name in found[8 + 3 * i]]
        self.events = {run: [each.event for each in found[9 + 3 * i]] for i, run in enumerate(runs)}


def _texts(reply: list[bytes | None]) -> list[str]:
    return [(item or b"").decode() for item in reply]


def redis_agrees_with_the_model(seen: See, model: Thread) -> None:
    assert seen.thread.get("open", b"").decode() == model.open
    assert int(seen.thread.get("fence", 0)) == model.fence
    assert seen.lane == model.lane
    for name, run in model.runs.items():
        assert seen.runs[name] == [run.status, run.cancel, str(run.commits)], name


def one_writer_and_a_lock_that_says_who(seen: See, model: Thread) -> None:
    running = [name for name, run in model.runs.items() if run.status == "running"]
    assert len(running) <= 1
    if seen.holder:
        assert running == [seen.holder.run_id]
        assert seen.holder.fence == model.fence


def accepted_means_durable(seen: See, model: Thread, read: list[str]) -> None:
    unread = [mail.id for mail in seen.mail]
    assert unread == model.mail
    assert sorted(unread + read) == sorted(model.accepted_mail)


def steps_commit_whole_or_not_at_all(seen: See, tags: list[str]) -> None:
    assert [each.message["content"][0]["text"] for each in seen.log if each.message["role"] == "assistant"] == tags
    assert sorted(seen.state) == sorted(seen.run_state) == sorted(tags)
    told = [event["delta"] for events in seen.events.values() for event in events if event["type"] == "text_delta"]
    assert sorted(told) == sorted(tags)


def exactly_one_terminal_event(seen: See, model: Thread) -> None:
    for name, run in model.runs.items():
        types = [event["type"] for event in seen.events[name]]
        assert Counter(types)["run_finish"] == (1 if run.status == "done" else 0), name
        assert run.status != "done" or types[-1] == "run_finish"


def never_busy_and_forgotten(seen: See, model: Thread) -> None:
    # Stronger than the promise: a lock alone would be forgotten when it expires, so the entry is always there.
    if model.busy:
        assert seen.watched is not None
        # A run at work is looked at as soon as its lease could have ended, however long nobody answered before.
        assert not seen.holder or float(seen.watched) <= seen.holder.lease_until + 1


def test_the_promises_hold_in_any_order(real: redis.Redis) -> None:
    class OnThisServer(Fleet):
        client = real

    examples = int(os.environ.get("POSTROOM_TEST_EXAMPLES", "60"))
    run_state_machine_as_test(
        OnThisServer,
        settings=settings(
            max_examples=examples, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize("wrong", ["lane", "fence"])
def test_the_property_test_can_fail(real: redis.Redis, wrong: str) -> None:
    """A model that lies must be caught, or the test above proves nothing."""

    class Liar(Fleet):
        client = real

        @invariant()
        def lie(self) -> None:
            for model in self.threads.values():
                if wrong == "fence" and model.fence >= 1:
                    model.fence += 1
                if wrong == "lane" and model.lane:
                    model.runs[model.lane[0]].status = "done"

    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(
            Liar, settings=settings(max_examples=30, stateful_step_count=10, deadline=None, database=None)
        )

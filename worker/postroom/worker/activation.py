"""One worker's stint on a run, and the only code that knows its order: claim → load → [turn → commit]* → let go.

Every way out leaves the run in Redis in a state somebody can go on from: committed and done, waiting or queued, or,
when this process dies or loses its lease, exactly as the last commit left it.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from postroom.mailbox import codec, commit, lock, records, relay
from postroom.mailbox import log as thread_log
from postroom.mailbox.commit import Arrivals, Batch, Owner
from postroom.mailbox.contracts import Termination, Usage
from postroom.mailbox.errors import FenceLost, InvalidInput, PostroomError
from postroom.mailbox.lifecycle import TerminationKind
from postroom.mailbox.log import Entry
from postroom.mailbox.ops import Fields, Op
from postroom.mailbox.runs import spent
from postroom.worker import notes
from postroom.worker.core.calls import OpenCall
from postroom.worker.desk import Active, Desk
from postroom.worker.loop import Aborting, Finish, Loop, Memory, Plain, Standing, Turn, Wait
from postroom.worker.pen import Pen

log = logging.getLogger(__name__)

# A failed attempt is repeated after 250 ms, then twice as long each time.
FIRST_RETRY_MS, LONGEST_RETRY_MS = 250, 30_000
NOTHING_SPENT = Usage()


async def activate(desk: Desk, thread_id: str, run_id: str) -> None:
    """Answers a doorbell."""
    claimed = await desk.claim(thread_id, run_id)
    if claimed is not None:
        claim, asked_at = claimed
        await serve(desk, Owner(thread_id, run_id, claim.fence), claim, asked_at)


async def serve(desk: Desk, owner: Owner, claim: lock.Claim, asked_at: float) -> None:
    """Works on a run that was claimed; the lease counts from when we asked for it."""
    run_id = owner.run_id
    active = Active(owner, desk.settings.lease_ms, asked_at + desk.settings.lease_ms / 1000)
    # Stopped past its lease and now asked again, this process may still hold the stint that was taken from it.
    if stale := desk.active.get(run_id):
        stale.lose()
    desk.active[run_id] = active
    desk.reach("claimed")
    try:
        await Activation(desk, active, claim).run()
    except FenceLost as error:
        log.warning("let go: %s", error, extra={"run_id": run_id, "fence": owner.fence})
    finally:
        if desk.active.get(run_id) is active:
            del desk.active[run_id]


class Activation:
    """Takes turns until the run ends, waits, or must be given back."""

    def __init__(self, desk: Desk, active: Active, claim: lock.Claim) -> None:
        run = claim.run
        self.desk = desk
        self.active = active
        self.owner = active.owner
        phase = _text(run, "phase")
        self.step = int(phase or run["step"])
        self.attempts = int(run["attempts"])
        self.started = claim.started
        self.agent = _text(run, "agent_now") or _text(run, "agent")
        self.config = _text(run, "config")
        self.request = _request(run)
        self.input = [] if "input_seq" in run else list(self.request.get("messages", ()))
        self.asked = notes.asked(claim, self.owner.run_id)
        self.log = thread_log.view(entry for entry in claim.log if entry is not self.asked) if claim.log else []
        self.mail = claim.mail
        self.usage, self.thread_usage = _usage(run), _usage(claim.thread)
        self.run_state, self.thread_state = _values(claim.run_state), _values(claim.thread_state)
        self.memory: Memory | None = None
        self.begun = False
        self.pen = Pen(desk, active, int(run["commits"]) + 1, self.step, bool(phase))
        if self.request.get("parent", {}).get("reports"):
            self.pen.relay = self._relay
        self.calls: tuple[OpenCall, ...] = ()
        if claim.calls:
            self.calls = notes.open_calls(claim.calls, self.asked.message if self.asked else None)
            self.pen.calls = notes.by_id(self.calls)
        self.pen.mail_given = len(self.mail)
        # The server's clock as of the claim, so that a retry is not early or late by how wrong our own is.
        self.clock_ahead = claim.lease_until - desk.settings.lease_ms - int(time.time() * 1000)
        active.cancel = _text(run, "cancel")

    async def run(self) -> None:
        """The loop; what fails for a passing reason is charged to the run and retried, later and elsewhere."""
        loop = await self.desk.loop(self.agent, self.config, self.step > 0)
        if loop is None:
            await self._end(Termination(kind=TerminationKind.ERROR, code="agent_not_found", message=self._no_agent()))
            return
        try:
            served = self.agent
            while await self._turn(loop):
                if self.agent != served:
                    served = self.agent
                    # Nobody to go on with it: whoever handed it over says so.
                    loop = await self.desk.loop(served, self.config, self.step > 0) or loop
        except FenceLost:
            raise
        except PostroomError as error:
            if error.retryable:
                await self._fail(error)
            else:
                await self._end(Termination(kind=TerminationKind.ERROR, code=error.code, message=error.message[:2000]))
        except Exception as error:
            log.exception("step %d of run %s failed", self.step, self.owner.run_id)
            await self._fail(error)
        finally:
            if self.memory:
                self.memory.close()
            await self.pen.rest()

    def _no_agent(self) -> str:
        known = ", ".join(sorted(self.desk.app.agents)) or "none"
        return f"this worker has no agent {self.agent!r}; it knows {known}"

    def _relay(self, told: list[Plain]) -> None:
        """Shows events of this run in its parent's journal: a hint, so nobody waits for it and it may be lost."""
        parent, owner, settings = self.request["parent"], self.owner, self.desk.settings
        about = (owner.run_id, owner.thread_id, self.agent, parent.get("call_id"))
        events = [relay.child_event(*about, event) for event in told if event["type"] in relay.SHOWN]
        if events:
            limits = settings.max_events, settings.max_body_bytes
            op = relay.relay(parent["thread_id"], parent["run_id"], events, *limits)
            self.desk.send_off(partial(self.desk.hint, op))

    async def _read_again(self) -> None:
        """The thread's state was changed by somebody else."""
        self.active.revoked = False
        self.thread_state = _values(await self.pen.send(records.get_state(self.owner.thread_id)))

    def _standing(self, changed: bool) -> Standing:
        arrived = () if self.calls else self._arrived()
        if not self.calls and not self.pen.step_open:
            self.step += 1
            self.pen.step = self.step
        return Standing(
            self.owner.thread_id,
            self.owner.run_id,
            self.agent,
            self.step,
            tuple(self.log),
            arrived,
            self.request,
            self.asked.message if self.asked else None,
            self.calls,
            self.pen.step_open,
            self.attempts,
            self.started,
            self.usage,
            self.thread_usage,
            self.config,
            self.run_state,
            self.thread_state,
            self.memory,
            changed,
        )

    async def _turn(self, loop: Loop) -> bool:
        """One turn and its commit; whether there is another one to take."""
        if not self.begun:
            self.begun = True
            self.pen.tell(
                {"type": "run_start", "agent": self.agent, "worker": self.desk.worker, "attempt": self.attempts}
            )
        if changed := self.active.revoked:
            await self._read_again()
        standing = self._standing(changed)
        turn = await self._taken(loop.step(standing, self.pen))
        if self.active.lost:
            raise FenceLost(f"run {self.owner.run_id}: the lease could not be kept")
        if turn is None:
            state = await self._aborted(loop, standing)
            await self._end(Termination(kind=_cancelled_kind(self.active.cancel), code=self.active.cancel), state)
            return False
        said = self._said(turn)
        self.desk.reach("before_commit")
        arrivals = await self.pen.write(lambda batch: self._written(turn, said, batch))
        self.desk.reach("after_commit")
        for effect in turn.effects:
            self.desk.send_off(effect)
        if isinstance(turn.then, Finish | Wait) and arrivals.outcome != "continue":
            return False
        await self._absorb(turn, said, arrivals)
        if self.desk.draining and not self.pen.step_open:
            await self.pen.send(lock.release(self.owner.thread_id, self.owner.run_id, self.owner.fence, "drain"))
            return False
        return True

    async def _aborted(self, loop: Loop, standing: Standing) -> Mapping[str, Any]:
        """Stops what the loop has at work elsewhere; whatever comes of that, the run ends."""
        try:
            return await loop.abort(standing, self.pen) if isinstance(loop, Aborting) else {}
        except Exception:
            log.exception("what run %s has at work elsewhere could not be stopped", self.owner.run_id)
            return {}

    async def _taken(self, stepping: Coroutine[Any, Any, Turn]) -> Turn | None:
        """The turn, or None when it was given up because the run must stop."""
        if self.active.cancel or self.active.lost:
            stepping.close()
            return None
        task: asyncio.Task[Turn] = asyncio.create_task(stepping)
        self.active.stepping = task
        try:
            return await task
        except asyncio.CancelledError:
            if self.active.cancel or self.active.lost:
                return None
            task.cancel()
            raise
        finally:
            self.active.stepping = None

    def _arrived(self) -> tuple[Plain, ...]:
        """What came since the last turn."""
        return (*self.input, *[mail.message for mail in self.mail])

    def _said(self, turn: Turn) -> list[Plain]:
        """What the turn adds to the log. Results come first: nothing may stand between a call and its result."""
        if not turn.folds:
            return list(turn.messages)
        arrived = turn.arrived if turn.arrived is not None else self._arrived()
        results = [message for message in turn.messages if message["role"] == "tool"]
        if not results:
            return [*arrived, *turn.messages]
        others = [message for message in turn.messages if message["role"] != "tool"]
        if self.calls:
            return [*results, *arrived, *others]
        # The calls were asked and answered within one turn.
        return [*arrived, *turn.messages]

    def _written(self, turn: Turn, said: list[Plain], batch: Batch) -> Op[Arrivals]:
        batch.run_fields["step"] = self.step
        if turn.summary:
            batch.say(turn.summary.message, turn.summary.covers)
            batch.thread_fields["mark"] = turn.summary.read_from
        for message in said:
            batch.say(message)
        for event in turn.events:
            batch.tell(event)
        if turn.folds:
            if self.input:
                batch.run_fields["input_seq"] = 1
            for mail in self.mail:
                batch.read(mail.number)
        batch.clear_calls = bool(self.calls) and not turn.calls
        if turn.calls:
            self.pen.note(batch, turn.calls)
        if turn.usage:
            self.usage, self.thread_usage = self.usage + turn.usage, self.thread_usage + turn.usage
            batch.run_fields["usage"] = codec.encode(spent(self.usage))
            batch.thread_fields["usage"] = codec.encode(spent(self.thread_usage))
        if turn.config:
            batch.run_fields["config"] = turn.config
        if turn.remote:
            batch.run_fields["remote"] = 1
        if turn.agent:
            batch.run_fields["agent_now"] = turn.agent
            batch.thread_fields["agent"] = turn.agent
        for errand in turn.errands:
            batch.send(errand)
        batch.children_dropped += turn.closed
        for call_id, output in turn.outputs.items():
            batch.keep_output(call_id, output)
        for name, value in turn.run_state.items():
            batch.run_state[name] = codec.encode(value, batch.limit)
        for name, value in turn.thread_state.items():
            batch.thread_state[name] = codec.encode(value, batch.limit)
        return self._verb(turn, batch)

    def _verb(self, turn: Turn, batch: Batch) -> Op[Arrivals]:
        match turn.then:
            case Finish(termination, result):
                return commit.finish(self.owner, batch, termination, result)
            case Wait(reason, wake, tickets, message):
                told: Plain = {"tickets": [ticket.as_dict() for ticket in tickets]} if tickets else {}
                if message:
                    told["message"] = message
                return commit.suspend(self.owner, batch, reason, wake, told)
            case _:
                return commit.commit(self.owner, batch)

    async def _absorb(self, turn: Turn, said: list[Plain], arrivals: Arrivals) -> None:
        """What the next turn starts from."""
        first = arrivals.seq - len(said) + 1
        entries = [Entry(first + place, 0, self.owner.run_id, self.step, said[place]) for place in range(len(said))]
        if turn.calls and not self.calls:
            self.asked = entries.pop()
        elif self.asked and not turn.calls:
            self.log.append(self.asked)
            self.asked = None
        self.log += entries
        if turn.summary:
            self.log = list(thread_log.folded(self.log, turn.summary.message, turn.summary.covers))
        if turn.folds:
            self.input = []
        self.calls = turn.calls
        if isinstance(turn.then, Wait):
            await self._look_again()
        self.mail = arrivals.mail
        self.pen.mail_given = len(self.mail)
        self.config = turn.config or self.config
        self.agent = turn.agent or self.agent
        self.run_state = {**self.run_state, **turn.run_state} if turn.run_state else self.run_state
        self.thread_state = {**self.thread_state, **turn.thread_state} if turn.thread_state else self.thread_state
        self.memory = turn.memory
        if not turn.calls:
            self.pen.calls = {}
        if arrivals.cancel:
            self.active.cancel = arrivals.cancel

    async def _look_again(self) -> None:
        """The decisions the run was about to wait for have come: they are in the journal."""
        journal = await self.pen.send(records.get_journal(self.owner.thread_id, self.owner.run_id))
        self.calls = notes.open_calls(journal, self.asked.message if self.asked else None)
        self.pen.calls = notes.by_id(self.calls)

    async def _end(self, termination: Termination, thread_state: Mapping[str, Any] | None = None) -> None:
        if self.pen.step_open:
            self.pen.tell({"type": "step_end"})

        def fill(batch: Batch) -> Op[Arrivals]:
            for message in self.input:
                batch.say(message)
            for name, value in (thread_state or {}).items():
                batch.thread_state[name] = codec.encode(value, batch.limit)
            return commit.finish(self.owner, batch, termination)

        try:
            await self.pen.write(fill)
        except InvalidInput as error:
            log.warning("what run %s was about to tell cannot be written: %s", self.owner.run_id, error)
            self.pen.forget()
            await self.pen.write(fill)

    async def _fail(self, error: Exception) -> None:
        # Whoever follows the run sees where it began, even if no attempt ever comes to a commit.
        await self.pen.flush()
        wait = min(FIRST_RETRY_MS * 2 ** max(self.attempts - 1, 0), LONGEST_RETRY_MS)
        at = int(time.time() * 1000) + self.clock_ahead + wait
        failure = lock.Failure(at, self.desk.settings.max_attempts)
        reason = f"{type(error).__name__}: {error}"[:500]
        await self.pen.send(lock.release(self.owner.thread_id, self.owner.run_id, self.owner.fence, reason, failure))


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return value.decode() if value else ""


def _request(run: Fields) -> Plain:
    """What was asked for; some of it stands in plain fields, for an operator to read."""
    request: Plain = codec.decode(run["request"]) if "request" in run else {}
    if tenant := _text(run, "tenant"):
        request["tenant"] = tenant
    if deadline := _text(run, "deadline"):
        request["deadline"] = int(deadline)
    request["queue"] = _text(run, "queue")
    request["priority"] = int(run.get("priority", 128))
    if "parent" in run:
        request["parent"] = codec.decode(run["parent"])
    return request


def _usage(fields: Fields) -> Usage:
    return Usage.model_validate(codec.decode(fields["usage"])) if fields.get("usage") else NOTHING_SPENT


def _values(fields: Fields) -> dict[str, Any]:
    return {name: codec.decode(value) for name, value in fields.items()} if fields else {}


def _cancelled_kind(code: str) -> TerminationKind:
    return TerminationKind.STOPPED if code == "deadline" else TerminationKind.CANCELLED

"""One worker's stint on a run, and the only code that knows its order: claim → load → [step → commit]* → let go.

Every way out leaves the run in Redis in a state somebody can go on from: committed and done, waiting or queued, or,
when this process dies or loses its lease, exactly as the last commit left it.
"""

import asyncio
import logging
import random
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from postroom.mailbox import codec, commit, lock, records
from postroom.mailbox import log as thread_log
from postroom.mailbox.commit import Arrivals, Batch, Owner
from postroom.mailbox.contracts import Termination
from postroom.mailbox.errors import FenceLost, NothingToDo
from postroom.mailbox.group import Group
from postroom.mailbox.lifecycle import TerminationKind
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings
from postroom.worker.app import App
from postroom.worker.loop import Finish, Plain, Standing, Turn, Wait

log = logging.getLogger(__name__)
T = TypeVar("T")

LOST_CONNECTION = (RedisConnectionError, RedisTimeoutError, OSError)
# A failed attempt is repeated after 250 ms, then twice as long each time.
FIRST_RETRY_MS, LONGEST_RETRY_MS = 250, 30_000


@dataclass(eq=False)
class Active:
    """A run this process holds, and what the outside world wants of it."""

    owner: Owner
    lease_ms: int
    lease_ends: float
    stepping: "asyncio.Task[Turn] | None" = None
    cancel: str = ""
    lost: bool = False

    def renewed(self, asked_at: float) -> None:
        """The lease holds from when it was asked for, never from when the answer came."""
        self.lease_ends = asked_at + self.lease_ms / 1000

    def request_cancel(self, code: str) -> None:
        """Somebody wants the run to stop: the step under way is given up."""
        self.cancel = self.cancel or code
        self._interrupt()

    def lose(self) -> None:
        """The lease is gone or as good as gone: nothing more may be committed."""
        self.lost = True
        self._interrupt()

    def _interrupt(self) -> None:
        if self.stepping:
            self.stepping.cancel()


@dataclass
class Desk:
    """What activations share: the connection, the app, who we are, and whether we are closing."""

    group: Group
    app: App
    settings: Settings
    worker: str
    active: dict[str, Active] = field(default_factory=dict)
    draining: bool = False

    async def claim(self, thread_id: str, run_id: str) -> lock.Claim | None:
        """The thread, or None when there is nothing to do for us."""
        try:
            return await self.group.run(lock.claim(thread_id, run_id, self.worker, self.settings.lease_ms))
        except NothingToDo as reason:
            log.debug("nothing to do: %s", reason)
            return None


async def activate(desk: Desk, thread_id: str, run_id: str) -> None:
    """Answers a doorbell."""
    asked_at = time.monotonic()
    claim = await desk.claim(thread_id, run_id)
    if claim is None:
        return
    owner = Owner(thread_id, run_id, claim.fence)
    active = Active(owner, desk.settings.lease_ms, asked_at + desk.settings.lease_ms / 1000)
    # Stopped past its lease and now asked again, this process may still hold the stint that was taken from it.
    if stale := desk.active.get(run_id):
        stale.lose()
    desk.active[run_id] = active
    try:
        await Activation(desk, active, claim).run()
    except FenceLost as error:
        log.warning("let go: %s", error, extra={"run_id": run_id, "fence": owner.fence})
    finally:
        if desk.active.get(run_id) is active:
            del desk.active[run_id]


class Activation:
    """Takes steps until the run ends, waits, or must be given back."""

    def __init__(self, desk: Desk, active: Active, claim: lock.Claim) -> None:
        self.desk = desk
        self.active = active
        self.owner = active.owner
        self.number = int(claim.run["commits"]) + 1
        self.step = int(claim.run["step"])
        self.attempts = int(claim.run["attempts"])
        self.agent = claim.run["agent"].decode()
        self.request: Plain = codec.decode(claim.run["request"]) if "request" in claim.run else {}
        self.input = [] if "input_seq" in claim.run else list(self.request.get("messages", ()))
        self.log = [entry.message for entry in thread_log.view(claim.log)]
        self.mail = claim.mail
        self.decisions = _decisions(claim)
        self.begun = False
        # The server's clock as of the claim, so that a retry is not early or late by how wrong our own is.
        self.clock_ahead = claim.lease_until - desk.settings.lease_ms - int(time.time() * 1000)
        active.cancel = claim.run.get("cancel", b"").decode()

    async def run(self) -> None:
        """The loop; a step that fails is charged to the run and retried, later and elsewhere."""
        agent = self.desk.app.agent(self.agent)
        if agent is None:
            await self._end(Termination(kind=TerminationKind.ERROR, code="agent_not_found", message=self._no_agent()))
            return
        try:
            while await self._turn(agent.loop.step(self._standing())):
                pass
        except FenceLost:
            raise
        except Exception as error:
            log.exception("step %d of run %s failed", self.step + 1, self.owner.run_id)
            await self._fail(error)

    def _no_agent(self) -> str:
        known = ", ".join(sorted(self.desk.app.agents)) or "none"
        return f"this worker has no agent {self.agent!r}; it knows {known}"

    def _standing(self) -> Standing:
        words = (*self.log, *self.input, *(mail.message for mail in self.mail))
        return Standing(
            self.owner.thread_id, self.owner.run_id, self.agent, self.step + 1, words, self.request, self.decisions
        )

    async def _turn(self, stepping: Coroutine[Any, Any, Turn]) -> bool:
        """One step and its commit; whether there is another one to take."""
        turn = await self._step(stepping)
        if self.active.lost:
            raise FenceLost(f"run {self.owner.run_id}: the lease could not be kept")
        if turn is None:
            await self._end(Termination(kind=_cancelled_kind(self.active.cancel), code=self.active.cancel))
            return False
        batch = self._batch(turn)
        arrivals = await self._write(self._verb(turn, batch))
        if isinstance(turn.then, (Finish, Wait)) and arrivals.outcome != "continue":
            return False
        self._absorb(turn, arrivals)
        if self.desk.draining:
            await self._write(lock.release(self.owner.thread_id, self.owner.run_id, self.owner.fence, "drain"))
            return False
        return True

    async def _step(self, stepping: Coroutine[Any, Any, Turn]) -> Turn | None:
        """The step's outcome, or None when it was given up because the run must stop."""
        if self.active.cancel or self.active.lost:
            stepping.close()
            return None
        task = self.active.stepping = asyncio.create_task(stepping)
        try:
            return await task
        except asyncio.CancelledError:
            if self.active.cancel or self.active.lost:
                return None
            task.cancel()
            raise
        finally:
            self.active.stepping = None

    def _batch(self, turn: Turn) -> Batch:
        self.step += 1
        batch = Batch(self.number, self.step, self.desk.settings.max_body_bytes, self.desk.settings.max_events)
        batch.run_fields["step"] = self.step
        if not self.begun:
            self.begun = True
            batch.tell({"type": "run_start", "agent": self.agent, "worker": self.desk.worker, "attempt": self.attempts})
        batch.tell({"type": "step_start"})
        for message in self._said(turn):
            batch.say(message)
        if self.input:
            batch.run_fields["input_seq"] = 1
        for mail in self.mail:
            batch.read(mail.number)
        for event in turn.events:
            batch.tell(event)
        batch.tell({"type": "step_end"})
        batch.clear_calls = turn.settles_calls
        if isinstance(turn.then, Wait):
            for index, ticket in enumerate(turn.then.tickets):
                batch.raise_ticket(ticket.call_id, ticket.as_dict())
                batch.calls[f"index:{ticket.call_id}"] = index
        return batch

    def _said(self, turn: Turn) -> list[Plain]:
        """What the step adds to the log. Results come first: nothing may stand between a call and its result."""
        results = [message for message in turn.messages if message["role"] == "tool"]
        others = [message for message in turn.messages if message["role"] != "tool"]
        return [*results, *self.input, *(mail.message for mail in self.mail), *others]

    def _verb(self, turn: Turn, batch: Batch) -> Op[Arrivals]:
        match turn.then:
            case Finish(termination, result):
                return commit.finish(self.owner, batch, termination, result)
            case Wait(reason, wake, tickets):
                told = {"tickets": [ticket.as_dict() for ticket in tickets]} if tickets else {}
                return commit.suspend(self.owner, batch, reason, wake, told)
            case _:
                return commit.commit(self.owner, batch)

    async def _write(self, op: Op[T]) -> T:
        """Writes, and goes on trying while the lease may still be ours: a commit found twice counts once."""
        pause = 0.05
        while True:
            if self.active.lost or time.monotonic() > self.active.lease_ends:
                raise FenceLost(f"run {self.owner.run_id}: the lease ran out before the step could be committed")
            try:
                return await self.desk.group.run(op)
            except LOST_CONNECTION as error:
                log.warning("commit of run %s: %s, trying again", self.owner.run_id, error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
                pause = min(pause * 2, 1.0)

    def _absorb(self, turn: Turn, arrivals: Arrivals) -> None:
        self.log += self._said(turn)
        self.input, self.decisions = [], ()
        self.mail = arrivals.mail
        self.number += 1
        if arrivals.cancel:
            self.active.cancel = arrivals.cancel

    async def _end(self, termination: Termination) -> None:
        batch = Batch(self.number, self.step)
        for message in self.input:
            batch.say(message)
        await self._write(commit.finish(self.owner, batch, termination))

    async def _fail(self, error: Exception) -> None:
        wait = min(FIRST_RETRY_MS * 2**self.attempts, LONGEST_RETRY_MS)
        at = int(time.time() * 1000) + self.clock_ahead + wait
        failure = lock.Failure(at, self.desk.settings.max_attempts)
        reason = f"{type(error).__name__}: {error}"[:500]
        await self._write(lock.release(self.owner.thread_id, self.owner.run_id, self.owner.fence, reason, failure))


def _decisions(claim: lock.Claim) -> tuple[Plain, ...]:
    """Answers to tickets, each with the call it belongs to."""
    found = records.call_records(claim.calls) if claim.calls else ()
    return tuple({**call.decision.as_dict(), "call_id": call.call_id} for call in found if call.decision)


def _cancelled_kind(code: str) -> TerminationKind:
    return TerminationKind.STOPPED if code == "deadline" else TerminationKind.CANCELLED

"""The one hand that writes for an activation: its commits leave one after the other, each with the next number.

Events told while a turn is under way are gathered and leave with the next commit, or by themselves if that is not soon:
the first words of an answer at once, those that follow after 30 ms, other news after 250. So a follower sees words come
in, and nobody awaits anything per word.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from postroom.dispatcher import AsyncDispatcher
from postroom.mailbox import commit, inbox
from postroom.mailbox.commit import Arrivals, Batch
from postroom.mailbox.errors import BodyTooLarge, FenceLost
from postroom.mailbox.ops import Op
from postroom.worker.core.calls import OpenCall
from postroom.worker.desk import Active, Desk
from postroom.worker.notes import by_id, note
from postroom.worker.patience import persist

log = logging.getLogger(__name__)
T = TypeVar("T")
Plain = dict[str, Any]

# Words are shown at once, or nearly; what else happens may wait for the commit that most likely comes first.
GATHER_S, NEWS_S = 0.03, 0.25
LONGEST_GATHER_S = 0.5
# Turns of the event loop for which events that are due still wait for a commit to take them along.
PATIENT_TURNS = 3
# Events that say more of the same, and the field that grows.
_GROWING = {
    "text_delta": "delta",
    "reasoning_delta": "delta",
    "tool_call_delta": "args_delta",
    "tool_call_stream_delta": "delta",
}


class Pen:
    """Writes for one activation. `calls` is what the journal holds, as far as this activation knows."""

    def __init__(self, desk: Desk, active: Active, number: int, step: int, step_open: bool) -> None:
        self.desk = desk
        self.active = active
        self.number = number
        self.step = step
        self.step_open = step_open
        self.calls: dict[str, OpenCall] = {}
        # How much mail this turn was given.
        self.mail_given = 0
        # Shows what was told to whoever follows the parent of this run, if it has one that listens.
        self.relay: Callable[[list[Plain]], None] | None = None
        self._told: list[Plain] = []
        self._phase_written = self._phase()
        self._writing = asyncio.Lock()
        self._timer: asyncio.Handle | None = None
        self._urgent = False
        self._silent = True
        self._pause = GATHER_S
        self._background: set[asyncio.Task[None]] = set()

    @property
    def dispatcher(self) -> AsyncDispatcher:
        """A client on the worker's own connection, for tools and plugins."""
        return self.desk.dispatcher

    def tell(self, event: Plain) -> None:
        """Shows an event; the start and the end of a step are remembered, so that each start gets one end."""
        kind = event["type"]
        if kind == "step_start":
            self.step_open = True
            self._silent = True
        elif kind == "step_end":
            self.step_open = False
        words = kind in _GROWING
        if not words or not self._joined(event):
            self._told.append(event)
        if self._timer is None or (words and not self._urgent):
            self._forget_timer()
            self._urgent = words
            wait = self._wait_for_words() if words else NEWS_S
            self._timer = asyncio.get_running_loop().call_later(wait, self._gathered)

    def _wait_for_words(self) -> float:
        """The first words of an answer are what somebody sits and waits for; those that follow are gathered."""
        first, self._silent = self._silent, False
        return 0 if first else self._pause

    def _forget_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _joined(self, event: Plain) -> bool:
        """Words that follow words become one event."""
        grows = _GROWING[event["type"]]
        last = self._told[-1] if self._told else None
        if not last or last["type"] != event["type"] or last.get("id") != event.get("id"):
            return False
        self._told[-1] = {**last, grows: last[grows] + event[grows]}
        return True

    async def mail_came(self) -> bool:
        """Whether mail has come that this turn was not given, as far as somebody said so."""
        if not self.active.mail:
            return False
        self.active.mail = False
        return await self.send(inbox.count(self.active.owner.thread_id)) > self.mail_given

    async def jot(self, calls: tuple[OpenCall, ...]) -> None:
        """Journals where calls stand now. It is written even if whoever asked for it is cancelled meanwhile."""

        def fill(batch: Batch) -> Op[Arrivals]:
            self.note(batch, calls)
            return commit.commit(self.active.owner, batch)

        await asyncio.shield(asyncio.ensure_future(self.write(fill)))

    def note(self, batch: Batch, calls: tuple[OpenCall, ...]) -> None:
        """Puts the calls that have moved into a batch."""
        for call in calls:
            note(batch, call, self.calls.get(call.id))
        self.calls |= by_id(calls)

    def reach(self, point: str) -> None:
        """Passes a named point at which tests may let the process die."""
        self.desk.reach(point)

    async def write(self, fill: Callable[[Batch], Op[T]]) -> T:
        """One commit, with the events told so far; whoever comes second waits for the first."""
        async with self._writing:
            settings = self.desk.settings
            batch = Batch(self.number, self.step, settings.max_body_bytes, settings.max_events)
            for event in self._told:
                try:
                    batch.tell(event)
                except BodyTooLarge as error:
                    # What it shows is stored or refused on its own; the events around it must not be lost with it.
                    log.warning("%s of run %s is not shown: %s", event["type"], self.active.owner.run_id, error)
            phase = self._phase()
            if phase != self._phase_written:
                batch.run_fields["phase"] = phase
            # What cannot be written at all takes nothing along: the events leave with what is written instead.
            op = fill(batch)
            told, self._told = self._told, []
            self._forget_timer()
            reply = await self.send(op)
            self.number += 1
            self._phase_written = phase
            if self.relay:
                self.relay(told)
            if isinstance(reply, Arrivals) and reply.outbox:
                self.desk.carry(self.active.owner.thread_id)
            return reply

    def forget(self) -> None:
        """Gives up what was told and cannot be written; a step whose start was seen still gets its end."""
        self._told = [{"type": "step_end"}] if self._phase_written and not self.step_open else []

    def _phase(self) -> str:
        """The number of the step that is open, for whoever finds the run without us."""
        return str(self.step) if self.step_open else ""

    def send(self, op: Op[T]) -> Coroutine[Any, Any, T]:
        """Sends, and goes on trying while the lease may still be ours: a commit found twice counts once."""
        self._still_ours()
        return persist(self.desk.group, op, f"commit of run {self.active.owner.run_id}", self._still_ours)

    def _still_ours(self) -> bool:
        if self.active.lost or time.monotonic() > self.active.lease_ends:
            raise FenceLost(f"run {self.active.owner.run_id}: the lease ran out before the step could be committed")
        return True

    def _gathered(self, turns: int = PATIENT_TURNS) -> None:
        # A busy event loop is late with everything: a commit may be about to come, and it takes all along.
        self._urgent = True
        if turns:
            self._timer = asyncio.get_running_loop().call_soon(self._gathered, turns - 1)
            return
        self._timer = None
        # One at a time: those that queued up behind a slow server would find nothing left to tell.
        if self._told and not self._background:
            task = asyncio.ensure_future(self._flush())
            self._background.add(task)
            task.add_done_callback(self._flushed)

    def _flushed(self, task: "asyncio.Task[None]") -> None:
        self._background.discard(task)
        if self._told and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._gathered)

    async def flush(self) -> None:
        """Writes what was told and nothing else, if anything was."""
        if self._told:
            await self._flush()

    async def _flush(self) -> None:
        began, words = time.monotonic(), any(event["type"] in _GROWING for event in self._told)
        try:
            arrivals = await self.write(lambda batch: commit.commit(self.active.owner, batch))
        except FenceLost:
            self.active.lose()
        except Exception:
            # The events are gone, but the step they belong to is not: its own commit says what is true.
            log.exception("telling of run %s failed", self.active.owner.run_id)
        else:
            # The longer words take, the more of them gather: many streams must not drown in their own commits.
            if words:
                self._pause = min(max(GATHER_S, 4 * (time.monotonic() - began)), LONGEST_GATHER_S)
            if arrivals.cancel:
                self.active.request_cancel(arrivals.cancel)

    async def rest(self) -> None:
        """Lets what is being written come to its end."""
        self._forget_timer()
        if self._background:
            await asyncio.wait(self._background)
            self._forget_timer()

"""What a worker does with doorbells: take those for which there is a slot, answer each, wait for the next.

A doorbell comes with the claim to its run, so what was taken is ours: if we do not hear of it, because the reply was
lost, we ask for the same batch again; if we were told to stop meanwhile, we give it back.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import redis.asyncio

from postroom.dispatcher.doorbells import put_back
from postroom.mailbox import lock, scripts
from postroom.mailbox.commit import Owner
from postroom.mailbox.connect import LOST_CONNECTION
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.group import Group
from postroom.mailbox.ids import new_id
from postroom.mailbox.ops import Op
from postroom.worker import bells
from postroom.worker.activation import serve
from postroom.worker.bells import Bell
from postroom.worker.desk import Desk
from postroom.worker.jobs import HANDLERS
from postroom.worker.lookout import Lookout
from postroom.worker.patience import persist
from postroom.worker.stock import StockWorker

log = logging.getLogger(__name__)

# Redis serves one call at a time: a larger grab would keep the others waiting without saving anything more.
MOST_BELLS = 32
# Lua cannot take more than a few thousand words at once.
MOST_TOLD = 1000
IDLE_S = 1.0
PATIENT_TURNS = 3
# A worker that says nothing for so many heartbeats has gone. What was sent long ago is good for one and a half: what a
# lease gives back must not go to the very worker that lost it.
BEATS_TO_LIVE, BEATS_TRUSTED = 4, 1.5
EXTEND_EVERY = scripts.ABANDONED_AFTER_S // 4


class Consumer:
    """Takes doorbells and answers them, so many at a time, until told to stop."""

    def __init__(
        self,
        desk: Desk,
        client: "redis.asyncio.Redis",
        stock: StockWorker,
        queues: list[str],
        slots: int,
        stopping: asyncio.Event,
    ) -> None:
        self.desk, self.stock, self.queues, self.slots, self.stopping = desk, stock, queues, slots, stopping
        self.lookouts = [Lookout(client, desk.group, queue) for queue in queues]
        # On a connection of their own: behind the commits of all runs that end, free slots would wait for nothing.
        self.taker = Group(client)
        self.serving: dict[asyncio.Task[None], Bell] = {}
        self.answered = 0
        self.turned = time.monotonic()
        self.freed = asyncio.Event()
        self._suspended = False
        self._resumed = asyncio.Event()
        self._extended = time.monotonic()
        self._unsaid: list[Bell] = []
        self._saying: asyncio.Task[None] | None = None

    # -- from outside ------------------------------------------------------------------------------------------------

    def suspend(self, suspended: bool) -> None:
        """Takes nothing more, or goes on."""
        self._suspended = suspended
        if suspended:
            # On the side: the heart must beat on, even if one who waits does not hear.
            self.desk.send_off(self._call_off)
        else:
            self._resumed.set()

    def stop(self) -> None:
        """Wakes whatever waits, so that it sees that we stop."""
        self.freed.set()
        self._resumed.set()
        self.desk.send_off(self._call_off)

    def extensions(self) -> list[Op[Any]]:
        """Now and then, what says that the doorbells we have are still being answered."""
        if time.monotonic() - self._extended < EXTEND_EVERY:
            return []
        self._extended = time.monotonic()
        now = datetime.now(UTC)
        return [bells.extend(queue, entries, now) for queue, entries in bells.by_queue(self.serving.values()).items()]

    def abandon(self) -> tuple[list["asyncio.Task[None]"], list[Op[Any]]]:
        """What is under way, to be cancelled; and what then says that its doorbells are not answered."""
        tasks = [*self.serving, *([self._saying] if self._saying else [])]
        return tasks, [self._let_go(bell) for bell in (*self.serving.values(), *self._unsaid)]

    async def close(self) -> None:
        """Gives the connections back."""
        await asyncio.gather(self.taker.close(), *(lookout.close() for lookout in self.lookouts))

    # -- taking ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Takes what there is room for, and waits when there is nothing to take."""
        there_are_more = True
        while not self.stopping.is_set():
            self.turned = time.monotonic()
            if self._suspended:
                self._resumed.clear()
                await _either(self._resumed, IDLE_S)
                continue
            free = self.slots - len(self.serving)
            if free <= 0:
                self.freed.clear()
                await _either(self.freed, IDLE_S)
                continue
            wanted, asked_at = min(free, MOST_BELLS), time.monotonic()
            if there_are_more:
                batch = new_id()
                taken = await self._surely(self.taker.run(self._taking(wanted, batch)), batch)
                await self._serve(taken, asked_at)
                there_are_more = len(taken) == wanted
            else:
                await self._wait(free)
                # What came is begun before anybody asks whether there is more.
                for _ in range(PATIENT_TURNS):
                    await asyncio.sleep(0)
                there_are_more = True

    def _taking(self, count: int, batch: str, again: bool = False, left_ms: int | None = None) -> Op[list[Bell]]:
        lease = self.desk.settings.lease_ms
        return bells.take(self.queues, count, self.desk.worker, lease, batch, again, left_ms)

    async def _wait(self, free: int) -> None:
        """Waits at every queue for a doorbell; the first that has something calls the others off."""
        take_one = len(self.lookouts) <= free
        # Nobody knows how long ago the server gave what comes; the first renewal puts that right.
        if len(self.lookouts) == 1:
            await self._serve(await self._watch(self.lookouts[0], take_one), time.monotonic())
            return
        waits = [asyncio.create_task(self._watch(lookout, take_one)) for lookout in self.lookouts]
        try:
            for wait in asyncio.as_completed(waits):
                await self._serve(await wait, time.monotonic())
                self.desk.send_off(self._call_off)
        finally:
            for left in waits:
                left.cancel()

    async def _watch(self, lookout: Lookout, take_one: bool) -> list[Bell]:
        batch = new_id()
        left = int((BEATS_TO_LIVE - BEATS_TRUSTED) * self.desk.settings.heartbeat_ms)
        take = self._taking(1, batch, left_ms=left) if take_one else None
        return await self._surely(lookout.watch(take), batch)

    async def _call_off(self) -> None:
        await asyncio.gather(*(lookout.call_off() for lookout in self.lookouts))

    async def _surely(self, asking: Awaitable[list[Bell]], batch: str) -> list[Bell]:
        """What was taken, even if the reply was lost: it is ours, and nobody else's until the leases end."""
        try:
            return await asking
        except LOST_CONNECTION as error:
            log.warning("taking doorbells: %s, trying again", error)
        with suppress(*LOST_CONNECTION):
            return await persist(
                self.desk.group, self._taking(0, batch, again=True), "taking doorbells", self._still_on
            )
        return []

    def _still_on(self) -> bool:
        self.turned = time.monotonic()
        return not self.stopping.is_set()

    # -- answering ---------------------------------------------------------------------------------------------------

    async def _serve(self, taken: list[Bell], asked_at: float) -> None:
        """Begins with each of them, unless we were told to stop meanwhile."""
        if self.stopping.is_set() and taken:
            await self._give_back(taken)
            return
        for bell in taken:
            task = asyncio.create_task(self._answer(bell, asked_at))
            self.serving[task] = bell
            task.add_done_callback(self._served)

    def _served(self, task: "asyncio.Task[None]") -> None:
        self.serving.pop(task, None)
        self.freed.set()
        self.answered += 1
        if not task.cancelled() and task.exception():
            log.error("answering a doorbell failed: %r", task.exception())

    async def _answer(self, bell: Bell, asked_at: float) -> None:
        try:
            if bell.owner and (claim := bell.claim):
                await serve(self.desk, bell.owner, claim, asked_at)
            elif not bell.opened:
                name, thread_id, run_id = bell.call()
                await HANDLERS[name](self.desk, thread_id, run_id)
        except (InvalidInput, KeyError) as error:
            await asyncio.to_thread(self.stock.refused, bell, f"this worker has no handler for the job: {error}")
            return
        except LOST_CONNECTION as error:
            # Nothing is lost: the run comes back from the watch list.
            log.warning("doorbell %s: %s", bell.job, error)
        if bell.written_by_rq:
            with suppress(*LOST_CONNECTION):
                await asyncio.to_thread(self.stock.finished, bell)
            return
        self._unsaid.append(bell)
        if self._saying is None:
            self._saying = asyncio.create_task(self._say_answered())

    async def _say_answered(self) -> None:
        """Tells RQ which doorbells were answered: in one script all that ended while it was told of the last ones."""
        while self._unsaid:
            told, self._unsaid = self._unsaid[:MOST_TOLD], self._unsaid[MOST_TOLD:]
            for queue, entries in bells.by_queue(told).items():
                with suppress(*LOST_CONNECTION):
                    await self.desk.group.run(bells.answered(queue, entries, self.desk.worker))
        self._saying = None

    async def _give_back(self, taken: list[Bell]) -> None:
        """Gives back what is not begun: its run goes on elsewhere, and nothing is charged."""
        with suppress(*LOST_CONNECTION):
            releases = [released(bell.owner) for bell in taken if bell.owner]
            await self.desk.group.run_all([*releases, *map(self._let_go, taken)])

    def _let_go(self, bell: Bell) -> Op[Any]:
        """A run that was given back has rung anew; where nobody has looked yet, the job itself goes back."""
        if bell.opened:
            return bells.answered(bell.queue, [bell.entry], self.desk.worker)
        return put_back(bell.queue, self.desk.worker, [bell.entry])


def released(owner: Owner) -> Op[Any]:
    """Gives a run back as it is, free of charge."""
    return lock.release(owner.thread_id, owner.run_id, owner.fence, "drain")


async def _either(event: asyncio.Event, seconds: float) -> None:
    """Waits for the event, but not for longer than that."""
    # asyncio.wait_for would make a task for it, at every start from idle.
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()

"""The worker process: one event loop, many runs, and RQ's view of it kept true.

1. take doorbells for which there is a free slot, never more
2. answer each with an activation; wait for the next one while there is none
3. beat: renew all leases, tell Redis and RQ that we live and consume
4. listen for wake-ups, so that a cancel or a changed agent is heard of at once
5. deliver what is owed to webhooks
6. on SIGTERM finish the steps under way, give the runs back, leave; on a second one leave now

If any of these loops dies, the process ends with an error rather than pretend to live.
"""

import asyncio
import gc
import logging
import os
import random
import signal
import socket
import time
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from redis.exceptions import RedisError

from postroom.dispatcher.doorbells import put_back
from postroom.dispatcher.sweep import Sweeper
from postroom.mailbox import agents, control, fleet, keys, lock, scripts
from postroom.mailbox.commit import Owner
from postroom.mailbox.connect import LOST_CONNECTION, connect_async
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.group import Group
from postroom.mailbox.ids import new_id
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings
from postroom.worker import bells
from postroom.worker.activation import serve
from postroom.worker.app import App
from postroom.worker.bells import Bell
from postroom.worker.desk import Desk
from postroom.worker.heartbeat import guard, renew_all, renew_now
from postroom.worker.jobs import HANDLERS
from postroom.worker.lookout import Lookout
from postroom.worker.model import resolve as models
from postroom.worker.stock import SUSPENDED, StockWorker
from postroom.worker.stored import StoredAgents
from postroom.worker.webhooks import Courier

log = logging.getLogger(__name__)
T = TypeVar("T")

# Redis serves one script at a time: a larger grab would keep the others waiting without saving anything more.
MOST_BELLS = 32
IDLE_S = 1.0
PATIENT_TURNS = 3
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
# A consume loop that has not turned for this long is dead, even if its task is not.
STUCK_S = 60
RQ_TTL_S = 60
# A worker that says nothing for so many heartbeats has gone.
BEATS_TO_LIVE = 4
# How long a worker that leaves tries to say so.
FAREWELL_S = 5
EXTEND_EVERY = scripts.ABANDONED_AFTER_S // 4


def new_name() -> str:
    """A name no other worker has, legal in a lock value."""
    host = "".join(char if char.isalnum() or char == "-" else "-" for char in socket.gethostname())
    return f"{host[:40]}-{os.getpid()}-{random.randrange(16**6):06x}"  # noqa: S311 - a name, not a secret


class Worker:
    """Consumes doorbells until told to stop."""

    def __init__(self, url: str, app: App, settings: Settings, queues: list[str], slots: int, name: str) -> None:
        self.url, self.app, self.settings, self.queues, self.slots, self.name = url, app, settings, queues, slots, name
        self.serving: dict[asyncio.Task[None], Bell] = {}
        self.unsaid: list[Bell] = []
        self.saying: asyncio.Task[None] | None = None
        self.stopping = asyncio.Event()
        self.freed = asyncio.Event()
        self.resumed = asyncio.Event()
        self.suspended = False
        self.turned = time.monotonic()
        self.extended = time.monotonic()
        self.answered = 0
        self.hurried = False

    async def run(self) -> int:
        """Works until stopped; 0 for a clean end, 1 when something essential died."""
        _collect_seldom()
        self.client = await connect_async(self.url)
        self.desk = Desk(Group(self.client), self.app, self.settings, self.name)
        models.default().gate.open(self.desk.group)
        self.stored = self.desk.stored = StoredAgents(self.desk.group, self.app)
        await self.stored.refresh()
        self.lookouts = [Lookout(self.client, self.desk.group, queue) for queue in self.queues]
        self.stock = await asyncio.to_thread(StockWorker, self.url, self.queues, self.name)
        await self._heed_suspension()
        self._listen_to_signals()
        log.info("worker %s takes %s, %d at a time", self.name, ", ".join(self.queues), self.slots)
        # These end by themselves when we stop: they may have doorbells on the way, an office to resign, calls to end.
        courier = Courier(self.desk.group, self.settings)
        self.ending = [*map(self._start, (self._consume(), self._sweep(), courier.run(self.stopping)))]
        others = [self._beat(), self._hear(), guard(self.desk)]
        loops = [*self.ending, *map(self._start, others)]
        stopped = self._start(self.stopping.wait())
        done, _ = await asyncio.wait([stopped, *loops], return_when=asyncio.FIRST_COMPLETED)
        code = 0
        # A loop that ended because we were told to stop has done nothing wrong.
        for task in (each for each in done - {stopped} if not self.stopping.is_set() or _failed(each)):
            log.critical("a loop of worker %s died: %r", self.name, task.exception() if not task.cancelled() else task)
            code = 1
        await self._leave(loops)
        return code

    def _start(self, loop: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return asyncio.create_task(loop)

    # -- consuming ---------------------------------------------------------------------------------------------------

    async def _consume(self) -> None:
        there_are_more = True
        while not self.stopping.is_set():
            self.turned = time.monotonic()
            if self.suspended:
                self.resumed.clear()
                await _either(self.resumed, IDLE_S)
                continue
            free = self.slots - len(self.serving)
            if free <= 0:
                self.freed.clear()
                await _either(self.freed, IDLE_S)
                continue
            wanted, asked_at = min(free, MOST_BELLS), time.monotonic()
            if there_are_more:
                batch = new_id()
                taken = await self._surely(self._take(wanted, batch), batch)
                await self._serve(taken, asked_at)
                there_are_more = len(taken) == wanted
            else:
                await self._wait(free)
                # What came is begun before anybody asks whether there is more.
                for _ in range(PATIENT_TURNS):
                    await asyncio.sleep(0)
                there_are_more = True

    async def _take(self, count: int, batch: str, again: bool = False) -> list[Bell]:
        return await self.desk.group.run(
            bells.take(self.queues, count, self.name, self.settings.lease_ms, batch, again)
        )

    async def _wait(self, free: int) -> None:
        """Waits at every queue for a doorbell; the first that has something calls the others off."""
        take_one = len(self.lookouts) <= free
        first, *others = self.lookouts
        if not others:
            await self._serve(await self._watch(first, take_one), time.monotonic())
            return
        waits = [self._start(self._watch(lookout, take_one)) for lookout in self.lookouts]
        try:
            for wait in asyncio.as_completed(waits):
                # Nobody knows how long ago the server gave it; the first renewal puts that right.
                await self._serve(await wait, time.monotonic())
                self.desk.send_off(self._call_off)
        finally:
            for left in waits:
                left.cancel()

    async def _watch(self, lookout: Lookout, take_one: bool) -> list[Bell]:
        batch, settings = new_id(), self.settings
        # Good for one and a half heartbeats: what a lease gives back must not go to the very worker that lost it.
        left = (BEATS_TO_LIVE - 1.5) * settings.heartbeat_ms
        take = bells.take(self.queues, 1, self.name, settings.lease_ms, batch, left_ms=int(left))
        return await self._surely(lookout.watch(take if take_one else None), batch)

    async def _call_off(self) -> None:
        await asyncio.gather(*(lookout.call_off() for lookout in self.lookouts))

    async def _surely(self, asking: Awaitable[list[Bell]], batch: str) -> list[Bell]:
        """What was taken, even if the reply was lost: it is ours, and nobody else's until the leases end."""
        pause = FIRST_PAUSE_S
        while True:
            leaving = self.stopping.is_set()
            try:
                return await asking
            except LOST_CONNECTION as error:
                log.warning("taking doorbells: %s, trying again", error)
                if leaving:
                    return []
                self.turned = time.monotonic()
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
                pause = min(pause * 2, LONGEST_PAUSE_S)
                asking = self._take(0, batch, again=True)

    async def _give_back(self, taken: list[Bell]) -> None:
        """Gives back what is not begun: its run goes on elsewhere, and nothing is charged."""
        with suppress(*LOST_CONNECTION):
            releases = [_released(bell.owner) for bell in taken if bell.owner]
            await self.desk.group.run_all([*releases, *map(self._let_go, taken)])

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
        self.unsaid.append(bell)
        if self.saying is None:
            self.saying = self._start(self._say_answered())

    async def _say_answered(self) -> None:
        """Tells RQ which doorbells were answered: in one script all that ended while it was told of the last ones."""
        while self.unsaid:
            told, self.unsaid = self.unsaid, []
            with suppress(*LOST_CONNECTION):
                await self.desk.group.run(bells.answered(told, self.name))
        self.saying = None

    # -- living ------------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            if time.monotonic() - self.turned > STUCK_S and not self.stopping.is_set():
                raise RuntimeError(f"the consume loop has not turned for {STUCK_S} s")
            with suppress(RedisError, OSError):
                seen, *_ = await renew_all(self.desk, [agents.changes(), *self._pulse(), *self._extensions()])
                await self.stored.refresh(seen)
                await self._heed_suspension()
            await asyncio.sleep(self.settings.heartbeat_ms / 1000 * random.uniform(0.9, 1.0))  # noqa: S311 - jitter

    async def _heed_suspension(self) -> None:
        """After `rq suspend` no worker takes anything more, until `rq resume`."""
        self.suspended = await self.desk.group.run(Op(("EXISTS", SUSPENDED), bool))
        if self.suspended:
            # On the side: the heart must beat on, even if one who waits does not hear.
            self.desk.send_off(self._call_off)
        else:
            self.resumed.set()

    def _pulse(self) -> list[Op[Any]]:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        fields: dict[str, str | int] = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "slots": self.slots,
            "active": len(self.desk.active),
            "answered": self.answered,
            "queues": ",".join(self.queues),
            "beat": at,
            **self.stored.pulse(),
        }
        # No current_job: there are many, each may be gone by the next beat, and dashboards fail on one that is.
        state = "busy" if self.serving else "idle"
        rq_key = bells.worker_key(self.name)
        return [
            *fleet.beat(self.name, fields, BEATS_TO_LIVE * self.settings.heartbeat_ms),
            Op(("HSET", rq_key, "last_heartbeat", at, "state", state), int),
            Op(("EXPIRE", rq_key, RQ_TTL_S), int),
        ]

    def _extensions(self) -> list[Op[Any]]:
        if time.monotonic() - self.extended < EXTEND_EVERY:
            return []
        self.extended = time.monotonic()
        per_queue: dict[str, list[str]] = {}
        for bell in self.serving.values():
            per_queue.setdefault(bell.queue, []).append(bell.entry)
        return [bells.extend(queue, entries, datetime.now(UTC)) for queue, entries in per_queue.items()]

    async def _hear(self) -> None:
        while True:
            try:
                async with self.client.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(keys.control(self.name), keys.AGENTS_CHANGED)
                    async for message in channel.listen():
                        await self._heard(message["channel"].decode(), message["data"])
            except (RedisError, OSError):
                await asyncio.sleep(random.uniform(0.2, 1.0))  # noqa: S311 - jitter

    async def _heard(self, channel: str, data: bytes) -> None:
        if channel == keys.AGENTS_CHANGED:
            await self.stored.refresh()
            return
        wake_up = control.parse(data)
        if wake_up and wake_up.word is control.Word.CANCEL:
            await renew_now(self.desk, wake_up.run_id)
        elif wake_up and wake_up.word is control.Word.REVOKED:
            self.desk.revoke(wake_up.run_id)

    async def _sweep(self) -> None:
        await Sweeper(self.desk.group, self.settings).run(self.stopping)

    # -- leaving -----------------------------------------------------------------------------------------------------

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    def stop(self) -> None:
        """First call: finish the steps under way. Second call: leave now."""
        if not self.stopping.is_set():
            log.info("worker %s takes no more and finishes %d steps", self.name, len(self.desk.active))
            self.desk.draining = True
            self.stopping.set()
        else:
            self.hurried = True
        self.freed.set()
        self.resumed.set()
        self.desk.send_off(self._call_off)

    async def _leave(self, loops: list["asyncio.Task[Any]"]) -> None:
        self.desk.draining = True
        self.stopping.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_ms / 1000):
                await asyncio.wait(self.ending)
                while self.serving and not self.hurried:
                    self.freed.clear()
                    await self.freed.wait()
        # What did not come to the end of its step is given back as it was, free of charge.
        held = [active.owner for active in self.desk.active.values()]
        unanswered = [*self.serving.values(), *self.unsaid]
        for task in (tasks := [*self.serving, *loops, *([self.saying] if self.saying else [])]):
            task.cancel()
        await asyncio.wait(tasks, timeout=FAREWELL_S)
        await models.default().close()
        # A server that is gone or hangs must not keep us from leaving; leases and records end by themselves.
        with suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self._say_goodbye(held, unanswered)
                await self.desk.rest()
                for lookout in self.lookouts:
                    await lookout.close()
                await self.desk.group.close()
                await self.client.aclose()

    async def _say_goodbye(self, held: list[Owner], unanswered: list[Bell]) -> None:
        releases = [_released(each) for each in held]
        answers = [self._let_go(bell) for bell in unanswered]
        for outcome in await self.desk.group.run_all([*releases, *answers, *fleet.leave(self.name)]):
            if isinstance(outcome, LOST_CONNECTION):
                raise outcome
        await asyncio.to_thread(self.stock.leave)

    def _let_go(self, bell: Bell) -> Op[Any]:
        """A run that was given back has rung anew; what was not looked into goes back itself, if it is still wanted."""
        if not bell.opened:
            return put_back(bell.queue, self.name, [bell.entry])
        return bells.answered([bell], self.name)


def _released(owner: Owner) -> Op[Any]:
    return lock.release(owner.thread_id, owner.run_id, owner.fence, "drain")


def _collect_seldom() -> None:
    """What was imported stays, and a run leaves few cycles: looking for them as usual was a fifth of its cost."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def _failed(task: "asyncio.Task[Any]") -> bool:
    return task.cancelled() or task.exception() is not None


async def _either(event: asyncio.Event, seconds: float) -> None:
    """Waits for the event, but not for longer than that."""
    # asyncio.wait_for would make a task for it, at every start from idle.
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()

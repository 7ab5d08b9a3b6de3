"""The worker process: one event loop, many runs, and RQ's view of it kept true.

1. consume: take doorbells for which there is a free slot, never more, and answer each with an activation
2. beat: renew all leases, tell Redis and RQ that we live and consume
3. listen for wake-ups, so that a cancel or a changed agent is heard of at once
4. deliver what is owed to webhooks
5. on SIGTERM finish the steps under way, give the runs back, leave; on a second one leave now

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
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from redis.exceptions import RedisError

from postroom.dispatcher.sweep import Sweeper
from postroom.mailbox import agents, control, fleet, keys
from postroom.mailbox.connect import LOST_CONNECTION, connect_async
from postroom.mailbox.group import Group
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings
from postroom.worker import bells
from postroom.worker.app import App
from postroom.worker.consuming import BEATS_TO_LIVE, Consumer, released
from postroom.worker.desk import Desk
from postroom.worker.heartbeat import guard, renew_all, renew_now
from postroom.worker.model import resolve as models
from postroom.worker.stock import SUSPENDED, StockWorker
from postroom.worker.stored import StoredAgents
from postroom.worker.webhooks import Courier

log = logging.getLogger(__name__)
T = TypeVar("T")

# A consume loop that has not turned for this long is dead, even if its task is not.
STUCK_S = 60
RQ_TTL_S = 60
# How long a worker that leaves waits for what it has called off, and then how long it tries to say that it leaves.
FAREWELL_S = 5


def new_name() -> str:
    """A name no other worker has, legal in a lock value."""
    host = "".join(char if char.isalnum() or char == "-" else "-" for char in socket.gethostname())
    return f"{host[:40]}-{os.getpid()}-{random.randrange(16**6):06x}"  # noqa: S311 - a name, not a secret


class Worker:
    """Consumes doorbells until told to stop."""

    def __init__(self, url: str, app: App, settings: Settings, queues: list[str], slots: int, name: str) -> None:
        self.url, self.app, self.settings, self.queues, self.slots, self.name = url, app, settings, queues, slots, name
        self.stopping = asyncio.Event()
        self.hurried = asyncio.Event()

    async def run(self) -> int:
        """Works until stopped; 0 for a clean end, 1 when something essential died."""
        _collect_seldom()
        self.client = await connect_async(self.url)
        self.desk = Desk(Group(self.client), self.app, self.settings, self.name)
        models.default().gate.open(self.desk.group)
        self.stored = self.desk.stored = StoredAgents(self.desk.group, self.app)
        await self.stored.refresh()
        self.stock = await asyncio.to_thread(StockWorker, self.url, self.queues, self.name)
        self.consumer = Consumer(self.desk, self.client, self.stock, self.queues, self.slots, self.stopping)
        await self._heed_suspension()
        self._listen_to_signals()
        log.info("worker %s takes %s, %d at a time", self.name, ", ".join(self.queues), self.slots)
        # These end by themselves when we stop: they may have doorbells on the way, an office to resign, calls to end.
        courier = Courier(self.desk.group, self.settings)
        self.ending = [*map(self._start, (self.consumer.run(), self._sweep(), courier.run(self.stopping)))]
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

    # -- living ------------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            if time.monotonic() - self.consumer.turned > STUCK_S and not self.stopping.is_set():
                raise RuntimeError(f"the consume loop has not turned for {STUCK_S} s")
            with suppress(RedisError, OSError):
                seen, *_ = await renew_all(self.desk, [agents.changes(), *self._pulse(), *self.consumer.extensions()])
                await self.stored.refresh(seen)
                await self._heed_suspension()
            await asyncio.sleep(self.settings.heartbeat_ms / 1000 * random.uniform(0.9, 1.0))  # noqa: S311 - jitter

    async def _heed_suspension(self) -> None:
        """After `rq suspend` no worker takes anything more, until `rq resume`."""
        self.consumer.suspend(await self.desk.group.run(Op(("EXISTS", SUSPENDED), bool)))

    def _pulse(self) -> list[Op[Any]]:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        fields: dict[str, str | int] = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "slots": self.slots,
            "active": len(self.desk.active),
            "answered": self.consumer.answered,
            "queues": ",".join(self.queues),
            "beat": at,
            **self.stored.pulse(),
        }
        # No current_job: there are many, each may be gone by the next beat, and dashboards fail on one that is.
        state = "busy" if self.consumer.serving else "idle"
        rq_key = bells.worker_key(self.name)
        return [
            *fleet.beat(self.name, fields, BEATS_TO_LIVE * self.settings.heartbeat_ms),
            Op(("HSET", rq_key, "last_heartbeat", at, "state", state), int),
            Op(("EXPIRE", rq_key, RQ_TTL_S), int),
        ]

    async def _hear(self) -> None:
        while True:
            try:
                async with self.client.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(keys.control(self.name), keys.AGENTS_CHANGED)
                    async for message in channel.listen():
                        await self._heard(message["channel"].decode(), message["data"])
            except (RedisError, OSError, RuntimeError):  # the last is what uvloop raises when the server hung up
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
        elif wake_up and wake_up.word is control.Word.MAIL:
            self.desk.mail_came(wake_up.run_id)

    async def _sweep(self) -> None:
        await Sweeper(self.desk.group, self.settings, "worker").run(self.stopping)

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
            self.hurried.set()
        self.consumer.stop()

    async def _leave(self, loops: list["asyncio.Task[Any]"]) -> None:
        self.desk.draining = True
        self.stopping.set()
        waits = [self._start(self._drained()), self._start(self.hurried.wait())]
        await asyncio.wait(waits, timeout=self.settings.drain_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        # What did not come to the end of its step is given back as it was, free of charge.
        held = [active.owner for active in self.desk.active.values()]
        under_way, given_back = self.consumer.abandon()
        for task in (tasks := [*under_way, *loops, *waits]):
            task.cancel()
        await asyncio.wait(tasks, timeout=FAREWELL_S)
        # A server that is gone or hangs must not keep us from leaving; leases and records end by themselves.
        with suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self._say_goodbye([*map(released, held), *given_back])
                await models.default().close()
                await self.desk.rest()
                await self.consumer.close()
                await self.desk.group.close()
                await self.client.aclose()

    async def _drained(self) -> None:
        await asyncio.wait(self.ending)
        while self.consumer.serving:
            self.consumer.freed.clear()
            await self.consumer.freed.wait()

    async def _say_goodbye(self, given_back: list[Op[Any]]) -> None:
        for outcome in await self.desk.group.run_all([*given_back, *fleet.leave(self.name)]):
            if isinstance(outcome, LOST_CONNECTION):
                raise outcome
        await asyncio.to_thread(self.stock.leave)


def _collect_seldom() -> None:
    """What was imported stays, and a run leaves few cycles: looking for them as usual was a fifth of its cost."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def _failed(task: "asyncio.Task[Any]") -> bool:
    return task.cancelled() or task.exception() is not None

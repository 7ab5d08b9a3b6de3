"""The sweep: one process at a time works off the watch list, so that nothing accepted is ever forgotten.

1. be the one sweeper (a lease on a key; whoever holds it looks, the others stand by; dispatchers come before workers)
2. look at every thread that is due: take back, start, wake, expire, ring again; carry out errands that are left
3. bury workers that have gone silent: the doorbells they had taken go back to their queues
4. now and then drop expired names from the listings, what is left of doorbells that nobody answered, and the functions
   of versions that are long out of use
"""

import asyncio
import logging
import os
import random
import socket
from typing import Any, Literal

from redis.exceptions import RedisError

from postroom.dispatcher.doorbells import drop_abandoned, put_back_all
from postroom.dispatcher.driving import drive
from postroom.dispatcher.errands import carry_out
from postroom.mailbox import fleet, keys, libraries, scripts, watch
from postroom.mailbox.connect import LOST_CONNECTION
from postroom.mailbox.group import Group
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings
from postroom.mailbox.watch import Look

log = logging.getLogger(__name__)

SWEEPER = "postroom:sweeper"
# There while a dispatcher waits for a worker to hand the office over.
WANTED = "postroom:sweeper:wanted"
Kind = Literal["dispatcher", "worker"]
LOOKS_AT_ONCE = 100
TIDY_EVERY = 60
_NEW = 2  # what elect.lua says of a sweeper that was none before


class Sweeper:
    """Sweeps for as long as it runs, if it is its turn."""

    def __init__(self, group: Group, settings: Settings, kind: Kind) -> None:
        self.kind = kind
        self.name = f"{kind}-{socket.gethostname()}-{os.getpid()}-{random.randrange(10**6)}"  # noqa: S311 - a name
        self.group = group
        self.settings = settings
        self.passes = 0

    async def run(self, stopping: asyncio.Event) -> None:
        """Sweeps once a second until told to stop; an unreachable server is waited for."""
        every = self.settings.sweep_ms / 1000
        while not stopping.is_set():
            pause = every
            try:
                if await self.elected():
                    pause = 0 if await self.sweep() >= LOOKS_AT_ONCE else every
            except (RedisError, OSError) as error:
                log.warning("sweep: the server %s (%s), trying again", _trouble(error), error)
                pause = every * random.uniform(1, 2)  # noqa: S311 - jitter
            try:
                await asyncio.wait_for(stopping.wait(), pause or 0.001)
            except TimeoutError:
                continue
        await self.resign()

    async def elected(self) -> bool:
        """Whether this process is the sweeper for the next few seconds."""
        lease = 3 * self.settings.sweep_ms
        script = scripts.of_package("postroom.dispatcher", "elect").sha
        stood = Op(("EVALSHA", script, 2, SWEEPER, WANTED, self.name, lease, self.kind), int)
        outcome = await self.group.run(stood)
        if outcome == _NEW:
            log.info("sweep: %s looks after the watch list", self.name)
        return outcome > 0

    async def resign(self) -> None:
        """Lets another one begin at once."""
        script = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
        try:
            await self.group.run(Op(("EVAL", script, 1, SWEEPER, self.name), int))
        except (RedisError, OSError):
            log.info("sweep: could not resign; the lease ends by itself")

    async def sweep(self) -> int:
        """Looks at what is due and says how many threads that were."""
        now = await self.group.run(watch.clock())
        due, odd = watch.due(now, LOOKS_AT_ONCE), watch.odd(now, LOOKS_AT_ONCE)
        threads, others = _answers(await self.group.run_all([due, odd]))
        for entry in others:
            log.error("sweep: %r on the watch list names no thread; dropped", entry)
            await self.group.run(watch.forget(entry))
        looks = await self.group.run_all([watch.reclaim(thread, self.settings.max_attempts) for thread in threads])
        for thread, look in zip(threads, looks, strict=True):
            _report(thread, look)
        await carry_out_all(self.group, self.settings, threads, looks)
        await self.bury()
        if self.passes % TIDY_EVERY == 0:
            await self.tidy(now)
        self.passes += 1
        return len(threads) + len(others)

    async def tidy(self, now: int) -> None:
        """Drops what has expired from the listings, doorbells nobody will answer, functions nobody calls."""
        for listing, kept in (
            (keys.RUNS, self.settings.run_retention_ms),
            (keys.DEAD, self.settings.run_retention_ms),
            (keys.UNDELIVERED, self.settings.run_retention_ms),
            (keys.THREADS, self.settings.thread_retention_ms),
            (keys.STRANDED, self.settings.thread_retention_ms),
        ):
            await self.group.run(watch.tidy(listing, now - kept, now))
        await drop_abandoned(self.group, now)
        await self.group.run(libraries.in_use(now))
        for name in await self.group.run(libraries.outdated(now)):
            await self.group.run_all(libraries.forget(name))

    async def bury(self) -> None:
        """Takes workers off the list that have gone silent, and puts back what they had not come to answer."""
        names = await self.group.run(fleet.names())
        pulses = _answers(await self.group.run_all([fleet.pulse(name) for name in names]))
        for name in (name for name, pulse in zip(names, pulses, strict=True) if pulse is None):
            count = await put_back_all(self.group, name)
            log.warning("sweep: worker %s has gone silent; put %d doorbells back", name, count)
            await self.group.run_all(fleet.leave(name))


async def release_dead(group: Group, settings: Settings, worker: str) -> int:
    """Takes back at once whatever a worker had that is known to be dead; says how many doorbells and runs that were."""
    # Doorbells first: those whose runs the worker had claimed are dropped, and each such run rings anew below.
    count, cursor = await put_back_all(group, worker), b"0"
    while True:
        # A scan meets every thread that stays on the list; pages by rank would skip some, for looking moves threads.
        cursor, found = await group.run(Op(("ZSCAN", keys.WATCH, cursor, "COUNT", LOOKS_AT_ONCE), tuple))
        page = watch.named(found[::2])
        holders = _answers(await group.run_all([Op(("GET", keys.lock(thread)), _worker_of) for thread in page]))
        held = [thread for thread, holder in zip(page, holders, strict=True) if holder == worker]
        looks = _answers(await group.run_all([watch.reclaim(thread, settings.max_attempts, worker) for thread in held]))
        for thread, look in zip(held, looks, strict=True):
            _report(thread, look)
        await carry_out_all(group, settings, held, looks)
        count += len(held)
        if cursor == b"0":
            return count


async def carry_out_all(
    group: Group, settings: Settings, threads: list[str], looks: list[Look | BaseException]
) -> None:
    """Carries out the errands that looks have found."""
    due = [thread for thread, look in zip(threads, looks, strict=True) if isinstance(look, Look) and look.errands]
    plans = [drive(carry_out(settings, thread), group.run_all) for thread in due]
    for thread, outcome in zip(due, await asyncio.gather(*plans, return_exceptions=True), strict=True):
        if isinstance(outcome, BaseException):
            log.warning("sweep: errands of thread %r: %s, trying again", thread, outcome)


def _trouble(error: BaseException) -> str:
    return "does not answer" if isinstance(error, LOST_CONNECTION) else "refuses"


def _answers(outcomes: list[Any]) -> list[Any]:
    """The outcomes of a round trip, unless the server was lost on the way: then nothing may be concluded from them."""
    for outcome in outcomes:
        if isinstance(outcome, LOST_CONNECTION):
            raise outcome
    return outcomes


def _worker_of(lock: bytes | None) -> str:
    return lock.decode().split(" ")[1] if lock else ""


def _report(thread: str, look: Look | BaseException) -> None:
    if isinstance(look, BaseException):
        log.warning("sweep: could not look at thread %r: %s", thread, look)
    elif look.dead:
        log.error("sweep: run %s is given up, its workers died too often", look.dead, extra={"thread_id": thread})
    elif look.doorbell:
        log.info("sweep: rang for run %s", look.doorbell.run_id, extra={"thread_id": thread})

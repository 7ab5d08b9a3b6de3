"""The supervisor: keeps N children running, and takes back what a dead one held before anybody has to wait for a lease.

It owns no runs and no state; if it dies itself, its children notice nothing and the leases cover for them.
"""

import asyncio
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from redis.exceptions import RedisError

from postroom.dispatcher.sweep import release_dead
from postroom.mailbox import fleet
from postroom.mailbox.connect import LOST_CONNECTION, connect_async
from postroom.mailbox.errors import PostroomError
from postroom.mailbox.group import Group
from postroom.mailbox.settings import Settings, variable
from postroom.worker.process import FAREWELL_S, new_name

log = logging.getLogger(__name__)

# A child that dies at once is started again ever more slowly; one that lived this long starts the count anew. So does a
# worker that was killed at its work: it is able to come up, and its work must not wait.
FIRST_PAUSE_S, LONGEST_PAUSE_S, LIVED_S = 0.1, 10.0, 10.0
WAIT_FOR_SERVER_S = 1.0
# What a child needs at most for its two farewells once its steps are over or given up; one that takes longer is stuck.
GRACE_S = 2 * FAREWELL_S + 1
LEFT_AS_TOLD = (0, -signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Role:
    """A kind of child: its name in the log, and its command line given the name it shall use."""

    title: str
    command: Callable[[str], Sequence[str]]


class Supervisor:
    """Starts the children, restarts those that die, passes signals on, and kills those that do not heed them."""

    def __init__(self, url: str, settings: Settings, roles: Sequence[Role]) -> None:
        self.url, self.settings, self.roles = url, settings, roles
        self.children: dict[str, asyncio.subprocess.Process] = {}
        self.stopping = asyncio.Event()

    async def run(self) -> int:
        """Until told to stop; the exit code is the worst of the children's last."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        self.client = await connect_async(self.url)
        self.group = Group(self.client)
        try:
            codes = await asyncio.gather(*(self._keep(role) for role in self.roles))
            return max(codes, default=0)
        finally:
            self.stop()
            await self.group.close()
            await self.client.aclose()

    def stop(self) -> None:
        """Passes the signal on: the first one drains, the second one ends; who is then still there is killed."""
        bound = 0 if self.stopping.is_set() else self.settings.drain_ms / 1000
        self.stopping.set()
        self._signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(bound + GRACE_S, self._signal, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for name, child in self.children.items():
            if number is signal.SIGKILL:
                log.error("%s has not left in time and is killed", name)
            with suppress(ProcessLookupError):
                child.send_signal(number)

    async def _keep(self, role: Role) -> int:
        pause = FIRST_PAUSE_S
        # Command lines are for everybody to read, and the URL may hold a password.
        environ = {**os.environ, variable("redis_url"): self.url}
        while True:
            name, began = new_name(), time.monotonic()
            # Its own session: Ctrl-C reaches the supervisor alone, which passes it on once.
            child = await asyncio.create_subprocess_exec(*role.command(name), env=environ, start_new_session=True)
            self.children[name] = child
            if self.stopping.is_set():  # told to stop while it was being started
                child.terminate()
            log.info("%s %s runs as pid %d", role.title, name, child.pid)
            code = await child.wait()
            del self.children[name]
            if self.stopping.is_set() and code in LEFT_AS_TOLD:
                return 0
            log.warning("%s %s died (exit %d)", role.title, name, code)
            worked = await self._take_back(name) and code < 0
            if self.stopping.is_set():
                return 1
            healthy = worked or time.monotonic() - began > LIVED_S
            pause = FIRST_PAUSE_S if healthy else min(pause * 2, LONGEST_PAUSE_S)
            if await self._stopped_within(pause * random.uniform(0.5, 1)):  # noqa: S311 - jitter
                return 0

    async def _take_back(self, name: str) -> bool:
        """Whether the dead child was a worker that had come up; what it had is free again, once the server answers."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                async with asyncio.timeout(FAREWELL_S if self.stopping.is_set() else None):
                    return await self._release(name)
            except LOST_CONNECTION as error:
                log.warning("could not take back what %s had (%s), trying again", name, error)
            except (RedisError, PostroomError) as error:
                log.error("could not take back what %s had (%s); its leases will end", name, error)
                return False
            if await self._stopped_within(pause):
                return False
            pause = min(pause * 2, WAIT_FOR_SERVER_S)

    async def _release(self, name: str) -> bool:
        count = await release_dead(self.group, self.settings, name)
        if count:
            log.info("took back %d doorbells and runs of %s", count, name)
        beating, _ = [await self.group.run(op) for op in fleet.leave(name)]
        return bool(beating)

    async def _stopped_within(self, seconds: float) -> bool:
        """Waits, but no longer than until we are told to stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)
        return self.stopping.is_set()


def python(*arguments: str) -> list[str]:
    """A command line for this very interpreter."""
    return [sys.executable, "-m", "postroom.worker", *arguments]

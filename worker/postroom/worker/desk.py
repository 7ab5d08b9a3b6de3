"""What the activations of one process share, and the runs it holds."""

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from postroom.dispatcher import AsyncDispatcher
from postroom.dispatcher.client import sharing
from postroom.dispatcher.driving import drive
from postroom.dispatcher.errands import carry_out
from postroom.mailbox import lock
from postroom.mailbox.commit import Owner
from postroom.mailbox.connect import LOST_CONNECTION
from postroom.mailbox.errors import NothingToDo, PostroomError
from postroom.mailbox.group import Group
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings
from postroom.worker.patience import persist

if TYPE_CHECKING:
    from postroom.worker.app import App
    from postroom.worker.loop import Loop
    from postroom.worker.stored import StoredAgents

log = logging.getLogger(__name__)


def _pass(_: str) -> None:
    """A named point where nothing happens."""


@dataclass(eq=False)
class Active:
    """A run this process holds, and what the outside world wants of it."""

    owner: Owner
    lease_ms: int
    lease_ends: float
    stepping: "asyncio.Task[Any] | None" = None
    cancel: str = ""
    lost: bool = False
    revoked: bool = False
    mail: bool = False

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
    app: "App"
    settings: Settings
    worker: str
    active: dict[str, Active] = field(default_factory=dict)
    draining: bool = False
    reach: Callable[[str], None] = _pass
    stored: "StoredAgents | None" = None
    activations: "itertools.count[int]" = field(default_factory=itertools.count)
    aside: set["asyncio.Task[None]"] = field(default_factory=set)
    carrying: dict[str, bool] = field(default_factory=dict)

    @cached_property
    def dispatcher(self) -> AsyncDispatcher:
        """A client on the connection of this process."""
        return sharing(self.group, self.settings)

    async def claim(self, thread_id: str, run_id: str) -> tuple[lock.Claim, float] | None:
        """The thread and when we asked for it, or None when there is nothing to do for us."""
        asked_at = time.monotonic()

        def once_more() -> bool:
            nonlocal asked_at
            asked_at = time.monotonic()
            return not self.draining

        number = str(next(self.activations))
        op = lock.claim(thread_id, run_id, self.worker, self.settings.lease_ms, number)
        try:
            return await persist(self.group, op, f"claim of run {run_id}", once_more), asked_at
        except NothingToDo as reason:
            log.debug("nothing to do: %s", reason)
            return None

    async def loop(self, agent: str, pinned: str, begun: bool) -> "Loop | None":
        """Who serves a run of that agent; one nobody has heard of may have been stored a moment ago."""
        if self.stored and not pinned and not self.app.names(agent):
            await self.stored.refresh()
        return self.app.loop(agent, pinned, begun)

    def revoke(self, run_id: str) -> None:
        """Somebody has taken back what was allowed on the thread of a run: its next turn must not rely on it."""
        if active := self.active.get(run_id):
            active.revoked = True

    def mail_came(self, run_id: str) -> None:
        """Somebody has sent mail to the thread of a run: it should look before it ends."""
        if active := self.active.get(run_id):
            active.mail = True

    def send_off(self, effect: Callable[[], Awaitable[None]]) -> None:
        """Carries out an effect on the side; if it fails, only the log knows."""
        task = asyncio.ensure_future(_carried_out(effect))
        self.aside.add(task)
        task.add_done_callback(self.aside.discard)

    async def hint(self, op: Op[Any]) -> None:
        """Sends what may be lost."""
        with suppress(*LOST_CONNECTION, PostroomError):
            await self.group.run(op)

    def carry(self, thread_id: str) -> None:
        """Carries out what a thread owes to others, on the side; once more if more comes meanwhile."""
        if thread_id in self.carrying:
            self.carrying[thread_id] = True
            return
        self.carrying[thread_id] = False
        self.send_off(lambda: self._carry(thread_id))

    async def _carry(self, thread_id: str) -> None:
        try:
            more = True
            while more:
                self.carrying[thread_id] = False
                self.reach("carrying")
                await drive(carry_out(self.settings, thread_id), self.group.run_all)
                self.reach("carried")
                more = self.carrying[thread_id]
        except LOST_CONNECTION as error:
            log.warning("errands of thread %r: %s; the sweep will see to them", thread_id, error)
        finally:
            del self.carrying[thread_id]

    async def rest(self) -> None:
        """Waits for everything that was sent off."""
        while self.aside:
            await asyncio.wait(self.aside)


async def _carried_out(effect: Callable[[], Awaitable[None]]) -> None:
    try:
        await effect()
    except Exception:
        log.exception("an effect failed")

"""The stored agents as one process has them: looked up when they change, resolved against what the app has to offer.

A definition that cannot be served here is refused, in the log and in the worker's sign of life. Runs to come stay with
the version before it, if this process has served one; otherwise they are given back, for a worker that can.
"""

import asyncio
import json
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from postroom.mailbox import agents
from postroom.mailbox.agents import Version
from postroom.mailbox.errors import AgentNotStored, PostroomError
from postroom.mailbox.group import Group
from postroom.mailbox.specs import read_spec
from postroom.worker.core.errors import AgentRefused
from postroom.worker.registry import Served

if TYPE_CHECKING:
    from postroom.worker.app import App

log = logging.getLogger(__name__)

LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Refusal:
    """A version that cannot be served here, and why."""

    version: int
    reason: str


class StoredAgents:
    """Keeps an app's stored agents as Redis has them."""

    def __init__(self, group: Group, app: "App") -> None:
        self.group, self.app = group, app
        self.seen = 0
        self.refused: dict[str, Refusal] = {}
        self._versions: dict[int, Version] = {}
        self._serving: dict[str, Served] = {}
        self._looking = asyncio.Lock()
        app.registry.source = self.fetch

    async def refresh(self, seen: int | None = None) -> None:
        """Takes over what has changed; given the number of the last change, as a heartbeat is, only if that is news."""
        if seen is not None and seen == self.seen:
            return
        async with self._looking:
            # The number first: what changes in between is then found once more, and not missed.
            changes, present = _values(await self.group.run_all([agents.changes(), agents.present()]))
            if changes == self.seen:
                return
            await self._load(present)
            self._resolve(present)
            self.seen = changes

    async def _load(self, present: dict[str, int]) -> None:
        missing = [number for number in present.values() if number not in self._versions]
        found = await self.group.run_all([agents.version(number) for number in missing])
        # One that is gone was replaced a moment ago; the next look finds its successor.
        here = [each for each in found if not isinstance(each, AgentNotStored)]
        self._versions = {
            number: version for number, version in self._versions.items() if number in present.values()
        } | {version.number: version for version in _values(here)}

    def _resolve(self, present: dict[str, int]) -> None:
        known = {*self.app.own, *present}
        self.app.catalogue.described |= {each.agent: _description(each) for each in self._versions.values()}
        before, serving, refused = self._serving, {}, {}
        for agent, number in present.items():
            plan = before.get(agent)
            version = self._versions.get(number)
            if version and (plan is None or plan.version != agents.pin(number)):
                try:
                    plan = self._plan(version, known)
                except AgentRefused as error:
                    refused[agent] = self._refuse(version, error.message)
            if plan:
                serving[agent] = plan
        self._serving, self.refused = serving, refused
        reasons = {agent: refusal.reason for agent, refusal in refused.items() if agent not in serving}
        self.app.registry.store(serving, reasons)

    def _plan(self, version: Version, known: set[str]) -> Served:
        try:
            plan = self.app.resolve(read_spec(version.spec), known)
        except PostroomError as error:
            raise AgentRefused(error.message) from None
        except Exception as error:
            # A plugin or a model that cannot be made: the definition is refused, and the worker lives on.
            log.exception("version %d of agent %s could not be resolved", version.number, version.agent)
            raise AgentRefused(f"{type(error).__name__}: {error}") from None
        log.info("agent %s is served as version %d", version.agent, version.number)
        return replace(plan, version=agents.pin(version.number))

    def _refuse(self, version: Version, reason: str) -> Refusal:
        refusal = Refusal(version.number, reason[:LONGEST_REASON])
        if self.refused.get(version.agent) != refusal:
            log.error("version %d of agent %s cannot be served here: %s", version.number, version.agent, reason)
        return refusal

    async def fetch(self, number: int) -> Served | None:
        """A version that some run began with, None if it is gone; one that cannot be served here is an error."""
        try:
            version = await self.group.run(agents.version(number))
        except AgentNotStored:
            return None
        # Those it may delegate to are found out when it does; they may have been dropped since it was stored.
        try:
            return self._plan(version, {*read_spec(version.spec).delegates})
        except PostroomError as error:
            raise AgentRefused(
                f"version {number} of agent {version.agent!r} cannot be served: {error.message}"
            ) from None

    def pulse(self) -> dict[str, str | int]:
        """What the worker's sign of life says of them."""
        told = {agent: {"version": each.version, "reason": each.reason} for agent, each in sorted(self.refused.items())}
        return {"agents": self.seen, "refused": json.dumps(told, ensure_ascii=False) if told else ""}


def _description(version: Version) -> str:
    """What whoever may delegate to the agent is told of it."""
    try:
        return read_spec(version.spec).description
    except PostroomError:
        return ""


def _values(outcomes: list[Any]) -> list[Any]:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes

"""The agents a worker can serve, as versions: a change makes a new one, and a run stays with the one it began with.

There are two layers, what the app defines and what is stored in Redis; of two agents of one name the stored one counts.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping

from postroom.mailbox.agents import pinned as stored_number
from postroom.worker.core.errors import AgentRefused
from postroom.worker.plan import Plan
from postroom.worker.remote.attending import RemotePlan

log = logging.getLogger(__name__)

# How an agent is served: by a loop of ours, or by somebody else.
Served = Plan | RemotePlan
# Versions of one agent that are kept for runs which began with them.
KEPT = 64
# Finds a stored version that is not known here yet.
Source = Callable[[int], Awaitable[Served | None]]


class Registry:
    """Plans by agent, the newest first; readers never wait, since a version is never changed."""

    def __init__(self) -> None:
        self.version = 0
        self.source: Source | None = None
        self._defined: dict[str, Served] = {}
        self._stored: dict[str, Served] = {}
        self._refused: Mapping[str, str] = {}
        self._current: dict[str, Served] = {}
        self._pinned: OrderedDict[tuple[str, str], Served] = OrderedDict()

    def replace(self, plans: Mapping[str, Served]) -> int:
        """Makes these the app's agents for all runs to come; the number of this version."""
        self._defined = dict(plans)
        return self._changed(plans)

    def update(self, plans: Mapping[str, Served]) -> int:
        """Adds agents or new versions of them."""
        return self.replace({**self._defined, **plans})

    def store(self, plans: Mapping[str, Served], refused: Mapping[str, str]) -> int:
        """Makes these the stored agents for all runs to come; `refused` are those without a plan, and why."""
        self._stored = dict(plans)
        self._refused = dict(refused)
        return self._changed(plans)

    def _changed(self, plans: Mapping[str, Served]) -> int:
        self._current = {**self._defined, **self._stored}
        for name, plan in plans.items():
            self._pin(name, plan)
        self.version += 1
        return self.version

    def _pin(self, name: str, plan: Served) -> None:
        self._pinned[name, plan.version] = plan
        self._pinned.move_to_end((name, plan.version))
        while len(self._pinned) > KEPT * max(len(self._current), 1):
            self._pinned.popitem(last=False)

    async def find(self, agent: str, pinned: str = "") -> Served | None:
        """Like `plan`, but a stored version that is not known here is looked for in Redis."""
        number = stored_number(pinned)
        if number and self.source and not self._known(agent, pinned):
            plan = await self.source(number)
            if plan is None:
                log.warning("version %d of agent %s is gone, the present one is taken", number, agent)
            else:
                self._pin(plan.agent.id, plan)
        if not self._known(agent, pinned) and (reason := self._refused.get(agent)):
            raise AgentRefused(f"this worker cannot serve agent {agent!r}: {reason}")
        return self.plan(agent, pinned)

    def plan(self, agent: str, pinned: str = "") -> Served | None:
        """The version a run began with if it is known here, else the present one; None for an agent nobody knows."""
        return self._known(agent, pinned) or self._current.get(agent) or self._current.get("default")

    def _known(self, agent: str, pinned: str) -> Served | None:
        return self._pinned.get((agent, pinned)) or self._pinned.get(("default", pinned)) if pinned else None

    def stores(self, agent: str) -> bool:
        """Whether the agent is a stored one, be it one that cannot be served here."""
        return agent in self._stored or agent in self._refused

    def names(self, agent: str) -> bool:
        """Whether there is an agent of that name, be it one that cannot be served here."""
        return agent in self._current or agent in self._refused

    @property
    def defined(self) -> list[str]:
        """The names of the agents that the app itself defines."""
        return sorted(self._defined)

    @property
    def agents(self) -> list[str]:
        """The names of all agents."""
        return sorted({*self._current, *self._refused})

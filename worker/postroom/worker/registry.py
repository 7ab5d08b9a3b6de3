"""The agents a worker can serve, as versions: a change makes a new one, and a run stays with the one it began with."""

import logging
from collections import OrderedDict

from postroom.worker.plan import Plan

log = logging.getLogger(__name__)

# Versions of one agent that are kept for runs which began with them.
KEPT = 64


class Registry:
    """Plans by agent, the newest first; readers never wait, since a version is never changed."""

    def __init__(self) -> None:
        self.version = 0
        self._current: dict[str, Plan] = {}
        self._pinned: OrderedDict[tuple[str, str], Plan] = OrderedDict()

    def replace(self, plans: dict[str, Plan]) -> int:
        """Makes these the agents of all runs to come; the number of this version."""
        self._current = dict(plans)
        for name, plan in plans.items():
            self._pinned[name, plan.version] = plan
            self._pinned.move_to_end((name, plan.version))
        while len(self._pinned) > KEPT * max(len(plans), 1):
            self._pinned.popitem(last=False)
        self.version += 1
        return self.version

    def update(self, plans: dict[str, Plan]) -> int:
        """Adds agents or new versions of them."""
        return self.replace({**self._current, **plans})

    def plan(self, agent: str, pinned: str = "") -> Plan | None:
        """The version a run began with if it is known here, else the present one; None for an agent nobody knows."""
        found = self._pinned.get((agent, pinned)) if pinned else None
        if pinned and not found:
            log.debug("version %s of agent %s is not known here, the present one is taken", pinned, agent)
        return found or self._current.get(agent) or self._current.get("default")

    @property
    def agents(self) -> list[str]:
        """The names of all agents."""
        return sorted(self._current)

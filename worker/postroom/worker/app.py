"""What a user writes: agents, put together in an app that a worker is pointed at."""

from collections.abc import Collection, Mapping, Sequence

from postroom.mailbox.agents import pinned as stored_number
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.keys import check_name
from postroom.mailbox.specs import AgentSpec, Behaviour
from postroom.worker.agent import Agent, agent_of
from postroom.worker.agent_loop import AgentLoop
from postroom.worker.catalogue import Catalogue
from postroom.worker.function_loop import FunctionLoop
from postroom.worker.loop import Loop
from postroom.worker.model.base import Model
from postroom.worker.plugins.base import Plugin
from postroom.worker.registry import Registry, Served
from postroom.worker.tools.base import Tool
from postroom.worker.tools.tasks import FUNCTION

__all__ = ["Agent", "App", "Behaviour"]


class App:
    """The agents a worker can serve; every mistake in it is found and listed when it is built.

    `tools`, `models` and `plugins` are there for agents that name them; `tasks` are functions that agents with the tool
    `spawn_task` may start in the background.
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        tools: Sequence[Tool] = (),
        models: Mapping[str, Model | str] | None = None,
        plugins: Sequence[Plugin] = (),
        tasks: Sequence[Tool] = (),
    ) -> None:
        problems: list[str] = []
        self.catalogue = Catalogue(tools, models or {}, plugins, tasks, problems)
        self.registry = Registry()
        self.loops: dict[str, Loop] = {f"{FUNCTION}{task.name}": FunctionLoop(task) for task in tasks}
        self._agent_loop = AgentLoop(self.registry)
        plans = self._plans(agents, problems)
        if problems:
            raise InvalidInput("this app cannot be built: " + "; ".join(problems))
        self.registry.replace(plans)

    def _plans(self, agents: Sequence[Agent], problems: list[str]) -> dict[str, Served]:
        plans: dict[str, Served] = {}
        names: set[str] = set()
        self.catalogue.described |= {agent.id: agent.description for agent in agents}
        for agent in agents:
            try:
                check_name(agent.id, "agent")
            except InvalidInput as error:
                problems.append(error.message)
            if agent.id in names:
                problems.append(f"agent {agent.id!r} is defined twice")
            names.add(agent.id)
            if agent.loop and agent.backend is None:
                self.loops[agent.id] = agent.loop
            elif plan := self.catalogue.plan(agent, problems):
                plans[agent.id] = plan
        for agent in agents:
            problems += _strangers(agent, names)
        return plans

    def replace(self, agents: Sequence[Agent]) -> int:
        """Makes these the agents of all runs to come; runs under way keep what they began with."""
        problems: list[str] = []
        plans = self._plans(agents, problems)
        if problems:
            raise InvalidInput("these agents cannot be served: " + "; ".join(problems))
        return self.registry.replace(plans)

    def resolve(self, spec: AgentSpec, known: Collection[str]) -> Served:
        """The plan of a stored definition, or one error with all that is wrong; `known` are the agents there are."""
        agent = agent_of(spec)
        problems = _strangers(agent, known)
        plan = self.catalogue.plan(agent, problems)
        if plan is None or problems:
            raise InvalidInput("; ".join(problems))
        return plan

    @property
    def agents(self) -> list[str]:
        """The names of all agents."""
        return sorted({*self.loops, *self.registry.agents})

    def names(self, agent: str) -> bool:
        """Whether one of them has that name; asked for every run, so nothing is sorted for it."""
        return agent in self.loops or self.registry.names(agent)

    @property
    def own(self) -> set[str]:
        """The names of those that the app itself defines."""
        return {*self.loops, *self.registry.defined}

    def loop(self, name: str, pinned: str = "", begun: bool = False) -> Loop | None:
        """The loop that serves the agent of that name, else the one called `default`.

        A run that has `begun` stays with its loop: one that is `pinned` began with an agent of the registry, and one
        that is not with a loop of the app's own, even if an agent of that name has been stored since.
        """
        if pinned and stored_number(pinned):
            return self._agent_loop
        if name in self.loops and (not self.registry.stores(name) or (begun and not pinned)):
            return self.loops[name]
        if self.registry.stores(name) or self.registry.plan(name):
            return self._agent_loop
        return self.loops.get("default")


def _strangers(agent: Agent, known: Collection[str]) -> list[str]:
    return [
        f"agent {agent.id!r} delegates to {name!r}, which does not exist"
        for name in agent.delegates
        if name not in known
    ]

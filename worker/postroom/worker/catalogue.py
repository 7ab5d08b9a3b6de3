"""What an app has to offer by name, and how an agent that uses it becomes a plan."""

import os
from collections.abc import Mapping, Sequence

from postroom.mailbox.backends import A2A
from postroom.mailbox.errors import PostroomError
from postroom.worker.agent import Agent
from postroom.worker.model.base import Model
from postroom.worker.model.resolve import default, resolve
from postroom.worker.plan import Draft
from postroom.worker.plugins.base import Plugin
from postroom.worker.registry import Served
from postroom.worker.remote.attending import RemotePlan, fingerprint
from postroom.worker.remote.peer import Peer
from postroom.worker.tools.base import Tool
from postroom.worker.tools.children import Nursery
from postroom.worker.tools.delegate import delegate
from postroom.worker.tools.send_message import message_receipt, recover_failed_messages, send_message
from postroom.worker.tools.tasks import cancel_task, list_tasks, spawn_task

# Tools that agents may name without anybody defining them.
BUILT_IN: dict[str, Tool] = {
    tool.name: tool for tool in (send_message, message_receipt, recover_failed_messages, cancel_task, list_tasks)
}


class Catalogue:
    """Tools, models and plugins by name; two of one name are a mistake."""

    def __init__(
        self,
        tools: Sequence[Tool],
        models: Mapping[str, Model | str],
        plugins: Sequence[Plugin],
        tasks: Sequence[Tool],
        problems: list[str],
    ) -> None:
        self.models = dict(models)
        self.described: dict[str, str] = {}
        self.tasks: dict[str, Tool] = {}
        for task in tasks:
            if self.tasks.setdefault(task.name, task) is not task:
                problems.append(f"task {task.name!r} is defined twice")
        self.tools: dict[str, Tool] = {}
        self.plugins: dict[str, Plugin] = {}
        for tool in tools:
            if self.tools.setdefault(tool.name, tool) is not tool:
                problems.append(f"tool {tool.name!r} is defined twice")
        for plugin in plugins:
            if self.plugins.setdefault(plugin.id, plugin) is not plugin:
                problems.append(f"plugin {plugin.id!r} is defined twice")

    def plan(self, agent: Agent, problems: list[str]) -> Served | None:
        """The plan of an agent, or None and what is wrong with it."""
        if agent.backend:
            return self._remote(agent, agent.backend, problems)
        if agent.model is None:
            problems.append(f"agent {agent.id!r} has neither a model nor a loop nor a backend")
            return None
        model = self._model(agent, agent.model, problems)
        named = agent.compaction.summary_model if agent.compaction else None
        summariser = self._model(agent, named, problems) if named else model
        if model is None or summariser is None:
            return None
        draft = Draft(agent, model, summariser)
        nursery = Nursery(agent.behaviour, tuple(agent.stop))
        built_in = {**BUILT_IN, "spawn_task": spawn_task(agent.delegates, self.tasks, nursery)}
        for tool in agent.tools:
            found = self.tools.get(tool) or built_in.get(tool) if isinstance(tool, str) else tool
            if found is None:
                draft.problem(f"tool {tool!r} does not exist")
            else:
                draft.add_tool(found, "its tools")
        for plugin in agent.plugins:
            known = self.plugins.get(plugin) if isinstance(plugin, str) else plugin
            if known is None:
                draft.problem(f"plugin {plugin!r} does not exist")
            else:
                draft.add_plugin(known)
        for name in agent.delegates:
            draft.add_tool(delegate(name, self.described.get(name, ""), nursery), f"its delegate {name!r}")
        plan = draft.plan()
        problems += draft.problems
        return None if draft.problems else plan

    def _remote(self, agent: Agent, config: A2A, problems: list[str]) -> RemotePlan | None:
        if ours := agent.out_of_place():
            problems.append(f"agent {agent.id!r} is remote and has no {', '.join(ours)} here; leave that out")
            return None
        return RemotePlan(agent, Peer(agent.id, config, default().http, os.environ), fingerprint(agent))

    def _model(self, agent: Agent, wanted: Model | str, problems: list[str]) -> Model | None:
        given = self.models.get(wanted, wanted) if isinstance(wanted, str) else wanted
        if not isinstance(given, str):
            return given
        try:
            return resolve(given)
        except PostroomError as error:
            problems.append(f"agent {agent.id!r}: {error.message}")
            return None

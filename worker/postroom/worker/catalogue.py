"""What an app has to offer by name, and how an agent that uses it becomes a plan."""

from collections.abc import Mapping, Sequence

from postroom.mailbox.errors import PostroomError
from postroom.worker.agent import Agent
from postroom.worker.model.base import Model
from postroom.worker.model.resolve import resolve
from postroom.worker.plan import Draft, Plan
from postroom.worker.plugins.base import Plugin
from postroom.worker.tools.base import Tool
from postroom.worker.tools.children import Nursery
from postroom.worker.tools.delegate import delegate
from postroom.worker.tools.send_message import message_receipt, recover_failed_messages, send_message

# Tools that agents may name without anybody defining them.
BUILT_IN: dict[str, Tool] = {tool.name: tool for tool in (send_message, message_receipt, recover_failed_messages)}


class Catalogue:
    """Tools, models and plugins by name; two of one name are a mistake."""

    def __init__(
        self,
        tools: Sequence[Tool],
        models: Mapping[str, Model | str],
        plugins: Sequence[Plugin],
        problems: list[str],
    ) -> None:
        self.models = dict(models)
        self.described: dict[str, str] = {}
        self.tools: dict[str, Tool] = {}
        self.plugins: dict[str, Plugin] = {}
        for tool in tools:
            if self.tools.setdefault(tool.name, tool) is not tool:
                problems.append(f"tool {tool.name!r} is defined twice")
        for plugin in plugins:
            if self.plugins.setdefault(plugin.id, plugin) is not plugin:
                problems.append(f"plugin {plugin.id!r} is defined twice")

    def plan(self, agent: Agent, problems: list[str]) -> Plan | None:
        """The plan of an agent, or None and what is wrong with it."""
        if agent.model is None:
            problems.append(f"agent {agent.id!r} has neither a model nor a loop")
            return None
        model = self._model(agent, agent.model, problems)
        named = agent.compaction.summary_model if agent.compaction else None
        summariser = self._model(agent, named, problems) if named else model
        if model is None or summariser is None:
            return None
        draft = Draft(agent, model, summariser)
        for tool in agent.tools:
            found = self.tools.get(tool) or BUILT_IN.get(tool) if isinstance(tool, str) else tool
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
        nursery = Nursery(agent.behaviour, tuple(agent.stop))
        for name in agent.delegates:
            draft.add_tool(delegate(name, self.described.get(name, ""), nursery), f"its delegate {name!r}")
        plan = draft.plan()
        problems += draft.problems
        return None if draft.problems else plan

    def _model(self, agent: Agent, wanted: Model | str, problems: list[str]) -> Model | None:
        given = self.models.get(wanted, wanted) if isinstance(wanted, str) else wanted
        if not isinstance(given, str):
            return given
        try:
            return resolve(given)
        except PostroomError as error:
            problems.append(f"agent {agent.id!r}: {error.message}")
            return None

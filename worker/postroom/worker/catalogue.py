"""What an app has to offer by name, and how an agent that uses it becomes a plan."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from postroom.mailbox.errors import InvalidInput, PostroomError
from postroom.worker.agent import Agent
from postroom.worker.core.output import OutputCheck
from postroom.worker.core.stop import MaxRounds
from postroom.worker.model.base import Model
from postroom.worker.model.resolve import resolve
from postroom.worker.plan import Draft, Plan
from postroom.worker.plugins.base import Plugin
from postroom.worker.tools.base import Tool


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
        model = self._model(agent, problems)
        if model is None:
            return None
        draft = Draft(agent, model)
        for tool in agent.tools:
            found = self.tools.get(tool) if isinstance(tool, str) else tool
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
        plan = draft.plan()
        problems += draft.problems
        return None if draft.problems else plan

    def _model(self, agent: Agent, problems: list[str]) -> Model | None:
        given = self.models.get(agent.model, agent.model) if isinstance(agent.model, str) else agent.model
        if given is None:
            problems.append(f"agent {agent.id!r} has neither a model nor a loop")
            return None
        if not isinstance(given, str):
            return given
        try:
            return resolve(given)
        except PostroomError as error:
            problems.append(f"agent {agent.id!r}: {error.message}")
            return None


def fingerprint(agent: Agent, plan_tools: Mapping[str, Tool], model: str) -> str:
    """A short name for exactly this definition: the same in every process that has it."""
    data = {
        "id": agent.id,
        "model": model,
        "instructions": agent.instructions,
        "tools": [[tool.name, tool.description, tool.parameters] for tool in plan_tools.values()],
        "max_rounds": agent.max_rounds,
        "stop": [_plain(policy) for policy in agent.stop],
        "context": _plain(agent.context),
        "compaction": _plain(agent.compaction),
        "effort": agent.effort,
        "temperature": agent.temperature,
        "max_tokens": agent.max_tokens,
        "plugins": [plugin if isinstance(plugin, str) else plugin.id for plugin in agent.plugins],
        "sections": {name: _plain(section) for name, section in agent.sections.items()},
        "behaviour": repr(agent.behaviour),
    }
    written = json.dumps(data, sort_keys=True, default=str)
    return hashlib.sha256(written.encode()).hexdigest()[:12]


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


__all__ = ["Catalogue", "InvalidInput", "MaxRounds", "OutputCheck", "fingerprint"]

"""An agent resolved: its model, its tools and everything its plugins bring, with every mistake found."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from postroom.mailbox.contract import invalid
from postroom.mailbox.contracts import FrontendTool
from postroom.mailbox.errors import PostroomError
from postroom.worker.agent import Agent
from postroom.worker.core.catalogue import selected
from postroom.worker.core.command import Phase
from postroom.worker.core.compaction import CompactionPolicy
from postroom.worker.core.context import ContextPolicy
from postroom.worker.core.output import Shape, asked
from postroom.worker.core.state import StateKey
from postroom.worker.core.stop import MaxRounds, StopPolicy
from postroom.worker.model.base import Model, Options, OutputSchema, ToolSpec
from postroom.worker.plugins.base import (
    ActionHandler,
    EffectHandler,
    Gate,
    Hook,
    InputFilter,
    Plugin,
    Registrar,
    ReplyFilter,
    Transform,
)
from postroom.worker.tools.base import Tool
from postroom.worker.tools.frontend import frontend_tool


@dataclass(frozen=True, slots=True)
class Plan:
    """What it takes to serve a run as an agent; the same for all runs of one version of it."""

    agent: Agent
    model: Model
    summariser: Model
    version: str = ""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    specs: tuple[ToolSpec, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    sections: Mapping[str, BaseModel] = field(default_factory=dict)
    keys: tuple[StateKey[Any, Any], ...] = ()
    hooks: Mapping[Phase, tuple[Hook, ...]] = field(default_factory=dict)
    gates: tuple[Gate, ...] = ()
    actions: Mapping[str, ActionHandler] = field(default_factory=dict)
    effects: Mapping[str, EffectHandler] = field(default_factory=dict)
    transforms: tuple[Transform, ...] = ()
    input_filters: tuple[InputFilter, ...] = ()
    reply_filters: tuple[ReplyFilter, ...] = ()
    stops: tuple[StopPolicy, ...] = ()
    context: ContextPolicy = ContextPolicy()
    compaction: CompactionPolicy = CompactionPolicy()
    options: Options = Options()
    output: Shape | None = None

    @property
    def parallel_safe(self) -> frozenset[str]:
        """The tools that may run side by side."""
        return frozenset(name for name, tool in self.tools.items() if tool.parallel_safe)


class Draft:
    """A plan in the making; it goes on after a mistake, so that all of them are told at once."""

    def __init__(self, agent: Agent, model: Model, summariser: Model) -> None:
        self.agent, self.model, self.summariser = agent, model, summariser
        self.problems: list[str] = []
        self.tools: dict[str, tuple[Tool, str]] = {}
        self.keys: dict[str, StateKey[Any, Any]] = {}
        self.plugins: dict[str, Plugin] = {}
        self.sections: dict[str, BaseModel] = {}
        self.registrars: list[Registrar] = []

    def problem(self, words: str) -> None:
        """Notes a mistake."""
        self.problems.append(f"agent {self.agent.id!r}: {words}")

    def add_tool(self, tool: Tool, source: str) -> None:
        """Adds a tool; two of one name are a mistake, wherever they come from."""
        known = self.tools.setdefault(tool.name, (tool, source))
        if known[0] is not tool:
            self.problem(f"tool {tool.name!r} comes from {known[1]} and from {source}")

    def add_plugin(self, plugin: Plugin) -> None:
        """Adds a plugin with all that it registers."""
        if plugin.id in self.plugins:
            self.problem(f"plugin {plugin.id!r} is given twice")
            return
        self.plugins[plugin.id] = plugin
        registrar = Registrar(plugin.id)
        plugin.register(registrar)
        self.registrars.append(registrar)
        for key in registrar.keys:
            if self.keys.setdefault(key.name, key) is not key:
                self.problem(f"state key {key.name!r} is registered twice, the second time by plugin {plugin.id!r}")
        self._configure(plugin)

    def _configure(self, plugin: Plugin) -> None:
        given = self.agent.sections.get(plugin.id)
        if given is None:
            return
        if plugin.section is None:
            self.problem(f"plugin {plugin.id!r} takes no settings, but there is a section for it")
        elif isinstance(given, plugin.section):
            self.sections[plugin.id] = given
        else:
            try:
                self.sections[plugin.id] = plugin.section.model_validate(given)
            except ValidationError as error:
                self.problem(invalid(f"section {plugin.id!r}", error).message)

    def plan(self) -> Plan:
        """The plan, as good as it got."""
        for name in sorted(set(self.agent.sections) - set(self.plugins)):
            self.problem(f"section {name!r} belongs to no plugin of it")
        for name in sorted(set(self.agent.active_hooks) - set(self.plugins)):
            self.problem(f"active_hooks names {name!r}, which is no plugin of it")
        active = [
            each for each in self.registrars if not self.agent.active_hooks or each.plugin in self.agent.active_hooks
        ]
        for registrar in active:
            for tool in registrar.tools:
                self.add_tool(tool, f"plugin {registrar.plugin!r}")
        # The order is the same in every process, or a provider's prompt cache would never be hit.
        kept = selected(sorted(self.tools), self.agent.allow, self.agent.exclude)
        tools = {name: self.tools[name][0] for name in kept}
        hooks: dict[Phase, list[Hook]] = {}
        for registrar in active:
            for phase, hook in registrar.hooks:
                hooks.setdefault(phase, []).append(hook)
        return Plan(
            self.agent,
            self.model,
            self.summariser,
            fingerprint(self.agent, tools, self.model.name),
            tools,
            _specs(tools),
            tuple(self.plugins.values()),
            self.sections,
            tuple(self.keys.values()),
            {phase: tuple(found) for phase, found in hooks.items()},
            tuple(gate for each in active for gate in each.gates),
            self._handlers("actions"),
            self._handlers("effects"),
            tuple(transform for each in active for transform in each.transforms),
            tuple(change for each in active for change in each.input_filters),
            tuple(change for each in active for change in each.reply_filters),
            (MaxRounds(rounds=self.agent.max_rounds), *self.agent.stop),
            (self.agent.context or ContextPolicy()).within(self.model.limits),
            self.agent.compaction or CompactionPolicy(),
            self._options(),
            self.agent.output,
        )

    def _options(self) -> Options:
        agent = self.agent
        return Options(
            temperature=agent.temperature,
            max_tokens=agent.max_tokens,
            effort=agent.effort,
            output=self._promised(),
            cache_prompt=agent.context.enable_prompt_cache if agent.context else True,
        )

    def _promised(self) -> OutputSchema | None:
        try:
            return asked(self.agent.output) if self.agent.output else None
        except PostroomError as error:
            self.problem(error.message)
            return None

    def _handlers(self, kind: str) -> dict[str, Any]:
        """Handlers count even when a plugin's hooks do not: what is already scheduled must find its handler."""
        found: dict[str, Any] = {}
        for registrar in self.registrars:
            for key, handler in getattr(registrar, kind).items():
                if key in found:
                    self.problem(f"{kind} {key!r} are handled twice, the second time by plugin {registrar.plugin!r}")
                found[key] = handler
        return found


def with_frontend_tools(plan: Plan, descriptors: list[dict[str, Any]]) -> Plan:
    """The plan of one run whose client carries tools out itself; one of the same name takes the agent's place."""
    own = (frontend_tool(FrontendTool.model_validate(each)) for each in descriptors)
    tools = dict(sorted({**plan.tools, **{tool.name: tool for tool in own}}.items()))
    return replace(plan, tools=tools, specs=_specs(tools))


def _specs(tools: Mapping[str, Tool]) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools.values())


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

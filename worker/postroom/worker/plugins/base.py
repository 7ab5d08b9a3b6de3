"""What a plugin is: it registers keys, hooks, gates, handlers and tools, and never touches a run by itself."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel

from postroom.mailbox.contracts import Decision
from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.calls import Intercept, OpenCall, Outcome
from postroom.worker.core.command import Command, Phase
from postroom.worker.core.state import State, StateKey
from postroom.worker.model.reply import Reply
from postroom.worker.tools.base import Tool

if TYPE_CHECKING:
    from postroom.dispatcher import AsyncDispatcher

Plain = dict[str, Any]
Config = TypeVar("Config", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class HookContext:
    """What a hook sees: a frozen picture of the run, and in the phases of one call or one answer, that call or answer.

    `now` is in milliseconds. `tools` are the names a model may use in this step, `tool` is the one that is called.
    """

    phase: Phase
    state: State
    thread_id: str
    run_id: str
    agent: str
    step: int
    now: int
    messages: tuple[Plain, ...] = ()
    tenant: str | None = None
    sections: Mapping[str, BaseModel] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    reply: Reply | None = None
    call: OpenCall | None = None
    tool: Tool | None = None
    outcome: Outcome | None = None
    client: "AsyncDispatcher | None" = None

    @property
    def dispatcher(self) -> "AsyncDispatcher":
        """A client on the worker's own connection; what it does happens at once, whatever becomes of the step."""
        if self.client is None:
            raise InvalidInput("there is no server at hand")
        return self.client

    @property
    def decision(self) -> Decision | None:
        """A person's answer to the ticket of this call, when it is being resumed."""
        return self.call.decision if self.call else None

    def config(self, section: type[Config]) -> Config:
        """The agent's settings for a plugin, or its defaults."""
        for found in self.sections.values():
            if isinstance(found, section):
                return found
        return section()


Hook = Callable[[HookContext], "Command | Awaitable[Command | None] | None"]
Gate = Callable[[HookContext], "Intercept | Awaitable[Intercept | None] | None"]
ActionHandler = Callable[[HookContext, Any], "Command | Awaitable[Command | None] | None"]
EffectHandler = Callable[[Any], "Awaitable[None] | None"]
# Pure functions over what is sent to the model, over what a user said, and over what the model said.
Transform = Callable[[tuple[Plain, ...], HookContext], tuple[Plain, ...]]
InputFilter = Callable[[Plain, HookContext], "Plain | Awaitable[Plain]"]
ReplyFilter = Callable[[Reply, HookContext], "Reply | Awaitable[Reply]"]


class Registrar:
    """Where a plugin says what it brings."""

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self.keys: list[StateKey[Any, Any]] = []
        self.hooks: list[tuple[Phase, Hook]] = []
        self.gates: list[Gate] = []
        self.actions: dict[str, ActionHandler] = {}
        self.effects: dict[str, EffectHandler] = {}
        self.tools: list[Tool] = []
        self.transforms: list[Transform] = []
        self.input_filters: list[InputFilter] = []
        self.reply_filters: list[ReplyFilter] = []

    def key(self, *keys: StateKey[Any, Any]) -> None:
        """Registers state keys."""
        self.keys += keys

    def hook(self, phase: Phase, hook: Hook) -> None:
        """Asks for a phase. Hooks of one phase see the same snapshot."""
        self.hooks.append((phase, hook))

    def gate(self, gate: Gate) -> None:
        """Asks to be heard before each tool call; a gate is pure and may be asked again."""
        self.gates.append(gate)

    def action(self, key: str, handler: ActionHandler) -> None:
        """Handles the actions of a key."""
        self.actions[key] = handler

    def effect(self, key: str, handler: EffectHandler) -> None:
        """Handles the effects of a key, after the commit."""
        self.effects[key] = handler

    def tool(self, *tools: Tool) -> None:
        """Brings tools along."""
        self.tools += tools

    def transform(self, transform: Transform) -> None:
        """Changes what is sent to the model, for one request at a time."""
        self.transforms.append(transform)

    def filter_input(self, change: InputFilter) -> None:
        """Rewrites what a user said before it is stored; done once for each message."""
        self.input_filters.append(change)

    def filter_reply(self, change: ReplyFilter) -> None:
        """Rewrites what the model said before it is stored and acted upon."""
        self.reply_filters.append(change)


class Plugin:
    """Base of all; `section` is the model of the agent's settings for it."""

    id: ClassVar[str]
    section: ClassVar[type[BaseModel] | None] = None

    def register(self, registrar: Registrar) -> None:
        """Says what the plugin brings."""

    def on_activate(self, context: HookContext) -> Command | None:
        """When its agent takes the run up for the first time."""
        return None

    def on_deactivate(self, context: HookContext) -> Command | None:
        """When its agent hands the run over."""
        return None

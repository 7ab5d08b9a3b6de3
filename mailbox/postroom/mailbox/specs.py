"""An agent as plain data: what can be stored, sent and compared. Whatever needs code is named, never carried."""

import json
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, ValidationInfo, field_validator, model_validator

from postroom.mailbox.backends import Backend
from postroom.mailbox.contract import AgentId, Contract, ToolName, parse
from postroom.mailbox.errors import BodyTooLarge, InvalidInput

MAX_SPEC_BYTES = 256 << 10
MOST_NAMES = 512

Pattern = Annotated[str, Field(min_length=1, max_length=256)]
PluginId = Annotated[str, Field(min_length=1, max_length=128)]
Names = Field(default=(), max_length=MOST_NAMES)
# Settings of parts that only a worker knows; it is the worker that checks them.
Settings = dict[str, JsonValue]


class Behaviour(Contract):
    """How patient a loop is; the defaults suit most agents.

    `parallel` calls of a step run side by side; 1 means one after the other. `continuations` is how often an answer
    that was cut off is continued, `nudges` how often an empty one is asked for again, `repairs` how often an answer of
    the wrong shape is, `failures` how often in a row one tool may fail before the run stops. `children` is how many
    runs it may have at work for it at a time, `depth` how many levels of them there may be.
    """

    parallel: Annotated[int, Field(ge=1)] = 4
    continuations: Annotated[int, Field(ge=0)] = 2
    nudges: Annotated[int, Field(ge=0)] = 2
    repairs: Annotated[int, Field(ge=0)] = 2
    failures: Annotated[int, Field(ge=1)] = 3
    output_limit: Annotated[int, Field(gt=0)] = 20_000
    children: Annotated[int, Field(ge=0)] = 128
    depth: Annotated[int, Field(ge=0)] = 4


class StopCondition(Contract):
    """When to stop: a policy by the name of its type, with its own settings beside."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Annotated[str, Field(min_length=1, max_length=64)]


# What is said of a remote agent; the rest it keeps to itself.
REMOTE_FIELDS = frozenset({"id", "description", "backend"})


class AgentSpec(Contract):
    """A definition of an agent. Models, tools and plugins are given by the name an app knows them under.

    An agent with a `backend` is remote: it has a model, tools and all the rest of its own.
    """

    id: AgentId
    backend: Backend | None = None
    model: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(default=None, validate_default=True)
    description: Annotated[str, Field(max_length=4096)] = ""
    instructions: Annotated[str, Field(max_length=MAX_SPEC_BYTES)] = ""
    tools: tuple[ToolName, ...] = Names
    allow: Annotated[tuple[Pattern, ...], Field(max_length=MOST_NAMES)] = ("*",)
    exclude: tuple[Pattern, ...] = Names
    delegates: tuple[AgentId, ...] = Names
    max_rounds: Annotated[int, Field(ge=0, le=1_000_000)] = 16
    stop: Annotated[tuple[StopCondition, ...], Field(max_length=64)] = ()
    context: Settings | None = None
    compaction: Settings | None = None
    effort: Literal["none", "low", "medium", "high", "max"] | Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    plugins: tuple[PluginId, ...] = Names
    active_hooks: tuple[PluginId, ...] = Names
    sections: Annotated[dict[PluginId, Settings], Field(max_length=MOST_NAMES)] = Field(default_factory=dict)
    output: Settings | None = None
    behaviour: Behaviour = Behaviour()

    @field_validator("model")
    @classmethod
    def _has_somebody(cls, model: str | None, info: ValidationInfo) -> str | None:
        # A backend that is wrong is not there; it has been complained of already.
        if model is None and "backend" in info.data and info.data["backend"] is None:
            raise ValueError("name the model of the agent, or the backend of a remote one")
        return model

    @model_validator(mode="after")
    def _fits_together(self) -> "AgentSpec":
        if self.backend and (ours := [name for name in sorted(type(self).model_fields) if self._says(name)]):
            raise ValueError(f"a remote agent has no {', '.join(ours)} here; leave that out")
        for what in ("tools", "plugins", "delegates"):
            names = getattr(self, what)
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{what} names {twice[0]!r} twice")
        for what in ("active_hooks", "sections"):
            if strangers := sorted(set(getattr(self, what)) - set(self.plugins)):
                raise ValueError(f"{what} names {strangers[0]!r}, which is no plugin of the agent")
        return self

    def _says(self, name: str) -> bool:
        """Whether something is said that is not for us to say of a remote agent."""
        usual = type(self).model_fields[name].get_default(call_default_factory=True)
        return name not in REMOTE_FIELDS and getattr(self, name) != usual

    def written(self) -> str:
        """As it is stored: the same definition is always the same text."""
        text = json.dumps(self.as_dict(), sort_keys=True, ensure_ascii=False)
        size = len(text.encode())
        if size > MAX_SPEC_BYTES:
            raise BodyTooLarge(f"agent {self.id!r} takes {size} bytes, the limit is {MAX_SPEC_BYTES}; shorten it")
        return text


def read_spec(text: str | bytes) -> AgentSpec:
    """A definition from the text it is stored as."""
    try:
        data: Any = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"AgentSpec: not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidInput(f"AgentSpec: a JSON object is needed, not a {type(data).__name__}")
    return parse(AgentSpec, data)

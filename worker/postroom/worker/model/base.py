"""What a model is: it is asked with a whole request and answers in pieces, the last of which says why it stopped."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from postroom.mailbox.contracts import Usage

Plain = dict[str, Any]


class StopReason(StrEnum):
    """Why a model stopped talking."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    TOOL_USE = "tool_use"
    STOP_SEQUENCE = "stop_sequence"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model gets to know it; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Plain


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The shape the final answer must have."""

    name: str
    schema: Plain


@dataclass(frozen=True, slots=True)
class Options:
    """How to answer; what is None is left to the provider. `effort`: none, low, medium, high, max or tokens."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    effort: str | int | None = None
    output: OutputSchema | None = None
    cache_prompt: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model: messages are plain data as in the log, the first may be of the role system.

    `upstream` replaces the model's own name at its provider; `routing_key` keeps a thread with one member of a pool,
    `tenant` is who shares a rate limit fairly.
    """

    messages: tuple[Plain, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: Options = Options()
    upstream: str | None = None
    routing_key: str = ""
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class TextPart:
    """More words."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """More reasoning; a signature or sealed value belongs to the reasoning so far."""

    text: str = ""
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class CallPart:
    """More of a tool call; the first part of a call has its name."""

    id: str
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class UsagePart:
    """Tokens spent so far in this answer; later ones replace earlier ones."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Reset:
    """Forget what was said so far: the answer begins again."""

    reason: str


@dataclass(frozen=True, slots=True)
class CallDropped:
    """A call whose arguments will never be complete."""

    id: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The last part."""

    reason: StopReason


Part = TextPart | ReasoningPart | CallPart | UsagePart | Reset | CallDropped | Stop


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model can take and give, as far as it is known, and what a million tokens cost in dollars."""

    context_window: int | None = None
    max_output_tokens: int | None = None
    input_price: float | None = None
    output_price: float | None = None
    cached_input_price: float | None = None
    cache_write_price: float | None = None


class Model(Protocol):
    """Answers requests. Closing the iterator ends the answer at once, wherever it is."""

    @property
    def name(self) -> str:
        """How people call it, such as `openai:gpt-5`."""
        ...

    @property
    def limits(self) -> Limits:
        """What is known of its size and price."""
        ...

    def stream(self, request: Request) -> AsyncIterator[Part]:
        """The answer in parts, or a ModelError."""
        ...

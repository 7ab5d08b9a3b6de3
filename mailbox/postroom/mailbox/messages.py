"""What is said: messages, their content, and the calls and results that models and tools exchange."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, model_validator

from postroom.mailbox.contract import CallId, Contract, MailId, Metadata, ToolName


class Base64Source(Contract):
    """Bytes carried in the message itself."""

    kind: Literal["base64"] = "base64"
    media_type: Annotated[str, Field(min_length=1, max_length=128)]
    data: str


class UrlSource(Contract):
    """Bytes found elsewhere."""

    kind: Literal["url"] = "url"
    url: Annotated[str, Field(min_length=1, max_length=8192)]


Source = Annotated[Base64Source | UrlSource, Field(discriminator="kind")]


class Text(Contract):
    """Words."""

    type: Literal["text"] = "text"
    text: str


class Image(Contract):
    """A picture; `detail` is passed to models that know it."""

    type: Literal["image"] = "image"
    source: Source
    detail: Literal["auto", "low", "high"] | None = None


class Document(Contract):
    """A file the model may read."""

    type: Literal["document"] = "document"
    source: Source
    title: str | None = None


class Audio(Contract):
    """A recording."""

    type: Literal["audio"] = "audio"
    source: Source


class Thinking(Contract):
    """A model's reasoning, with the signature its provider wants back."""

    type: Literal["thinking"] = "thinking"
    text: str
    signature: str | None = None


ContentBlock = Annotated[Text | Image | Document | Audio | Thinking, Field(discriminator="type")]


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Visibility(StrEnum):
    """Who sees a message: everybody, or only the model and the runtime."""

    ALL = "all"
    INTERNAL = "internal"


class ToolCall(Contract):
    """A model's wish to use a tool; arguments that did not parse are kept as the text they were."""

    id: CallId
    name: ToolName
    arguments: dict[str, JsonValue] | str = Field(default_factory=dict)


class Message(Contract):
    """One entry of a thread's log."""

    role: Role
    content: tuple[ContentBlock, ...] = ()
    id: MailId | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: CallId | None = None
    visibility: Visibility = Visibility.ALL
    metadata: Metadata = Field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data without what is empty or usual."""
        return {name: value for name, value in super().as_dict().items() if value and value != Visibility.ALL}

    @property
    def text(self) -> str:
        """The words alone."""
        return "".join(block.text for block in self.content if isinstance(block, Text))

    @model_validator(mode="after")
    def _fits_its_role(self) -> "Message":
        if (self.role is Role.TOOL) != (self.tool_call_id is not None):
            raise ValueError("tool_call_id belongs to messages of the role tool, and each of those needs one")
        if self.tool_calls and self.role is not Role.ASSISTANT:
            raise ValueError("only an assistant's message may carry tool_calls")
        return self


def message(role: str, text: str, **more: Any) -> Message:
    """A message of plain words."""
    return Message(role=Role(role), content=(Text(text=text),), **more)


def _no_parameters() -> dict[str, JsonValue]:
    return {"type": "object", "properties": {}}


class FrontendTool(Contract):
    """A tool that the client itself carries out; `parameters` is a JSON schema."""

    name: ToolName
    description: str = ""
    parameters: dict[str, JsonValue] = Field(default_factory=_no_parameters)


class ToolResult(Contract):
    """What became of a call."""

    status: Literal["success", "error", "pending"]
    data: JsonValue = None
    message: str | None = None
    metadata: Metadata = Field(default_factory=dict)

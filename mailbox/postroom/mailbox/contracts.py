"""The words that travel: requests, messages, calls, tickets, decisions and records, checked at the edge and frozen."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from postroom.mailbox import keys
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.keys import MAX_ID_BYTES
from postroom.mailbox.lifecycle import CallStatus, RunStatus, TerminationKind, TicketStatus, WaitingReason


def _id(what: str) -> AfterValidator:
    return AfterValidator(lambda value: keys.check_id(value, what))


def _name(what: str) -> AfterValidator:
    return AfterValidator(lambda value: keys.check_name(value, what))


def _token(what: str) -> AfterValidator:
    return AfterValidator(lambda value: keys.check_token(value, what))


ThreadId = Annotated[str, _id("thread id")]
RunId = Annotated[str, _token("run id")]
CallId = Annotated[str, _id("call id")]
MailId = Annotated[str, _id("mail id")]
DecisionId = Annotated[str, _id("decision id")]
AgentId = Annotated[str, _name("agent")]
QueueName = Annotated[str, _name("queue")]
ToolName = Annotated[str, _name("tool")]
Milliseconds = Annotated[int, Field(ge=0, le=10**13)]
Metadata = dict[str, JsonValue]
Model = TypeVar("Model", bound=BaseModel)


class Contract(BaseModel):
    """Base of all: immutable, and an unknown field is a mistake worth hearing about."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def as_dict(self) -> dict[str, Any]:
        """Plain data without what is unset, ready for the codec."""
        return self.model_dump(mode="json", exclude_none=True)


# -- messages ---------------------------------------------------------------------------------------------------------


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


class ToolResult(Contract):
    """What became of a call."""

    status: Literal["success", "error", "pending"]
    data: JsonValue = None
    message: str | None = None
    metadata: Metadata = Field(default_factory=dict)


# -- approvals --------------------------------------------------------------------------------------------------------


class ResumeMode(StrEnum):
    """What a decision does to the call it lets go on."""

    REPLAY_TOOL_CALL = "replay_tool_call"
    USE_DECISION_AS_TOOL_RESULT = "use_decision_as_tool_result"
    PASS_DECISION_TO_TOOL = "pass_decision_to_tool"  # noqa: S105 - the name of a mode, not a secret


class Risk(StrEnum):
    """How much a wrong yes would cost."""

    SAFE = "safe"
    SENSITIVE = "sensitive"
    DESTRUCTIVE = "destructive"


class Ticket(Contract):
    """A question to a person about one suspended call."""

    id: CallId
    call_id: CallId
    tool: ToolName
    arguments: dict[str, JsonValue] | str = Field(default_factory=dict)
    action: str = "approve"
    message: str = ""
    risk: Risk = Risk.SENSITIVE
    action_key: str | None = None
    resume_mode: ResumeMode = ResumeMode.REPLAY_TOOL_CALL
    response_schema: dict[str, JsonValue] | None = None
    expires_at: Milliseconds | None = None
    on_expiry: Literal["deny", "stop"] = "deny"


class DecisionAction(StrEnum):
    """What a person may answer."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    DENY = "deny"
    DENY_AND_STOP = "deny_and_stop"
    ANSWER = "answer"
    CANCEL = "cancel"


class Decision(Contract):
    """A person's answer to a ticket; the first one for a ticket counts, the same one twice is one."""

    id: DecisionId
    target: CallId
    action: DecisionAction
    arguments: dict[str, JsonValue] | None = None
    result: JsonValue = None
    reason: str | None = Field(default=None, max_length=4096)
    by: str | None = Field(default=None, max_length=256)


# -- runs and threads -------------------------------------------------------------------------------------------------


class OnBusy(StrEnum):
    """What a submission does when its thread has a run already."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    STEER = "steer"
    ROLLBACK = "rollback"


class OnWaiting(StrEnum):
    """What an enqueued submission does when its thread's run waits for somebody."""

    SUPERSEDE = "supersede"
    ENQUEUE = "enqueue"
    REJECT = "reject"


class Parent(Contract):
    """Who started a run on behalf of whom."""

    thread_id: ThreadId
    run_id: RunId
    call_id: CallId | None = None


class RunRequest(Contract):
    """What a caller asks for; ids and defaults are filled in before it is stored."""

    run_id: RunId
    thread_id: ThreadId
    agent: AgentId | None = None
    messages: tuple[Message, ...] = ()
    on_busy: OnBusy = OnBusy.ENQUEUE
    on_waiting: OnWaiting = OnWaiting.SUPERSEDE
    idempotency_key: Annotated[str, _id("idempotency key")] | None = None
    queue: QueueName = "default"
    priority: Annotated[int, Field(ge=0, le=255)] = 128
    start_at: Milliseconds | None = None
    deadline: Milliseconds | None = None
    metadata: Metadata = Field(default_factory=dict)
    tenant: Annotated[str, _id("tenant")] | None = None
    webhook: Annotated[str, Field(max_length=2048, pattern=r"^https?://")] | None = None
    parent: Parent | None = None
    overrides: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _can_be_done(self) -> "RunRequest":
        if self.run_id.startswith("mail-"):
            raise ValueError("run ids that begin with 'mail-' are given to runs that mail starts")
        if self.start_at is not None and self.on_busy is not OnBusy.ENQUEUE:
            raise ValueError("a delayed run can only be enqueued; leave on_busy at 'enqueue'")
        if self.on_busy is OnBusy.STEER and not self.messages:
            raise ValueError("steering needs at least one message")
        return self


class Letter(Contract):
    """A message on its way to a thread's mailbox; its id makes a second sending harmless."""

    id: MailId
    thread_id: ThreadId
    message: Message
    sender: Annotated[str, Field(max_length=MAX_ID_BYTES)] = ""
    kind: Literal["message", "steer", "task"] = "message"
    agent: AgentId | None = None
    queue: QueueName = "default"


class Termination(Contract):
    """How a run ended."""

    kind: TerminationKind
    code: str | None = None
    message: str | None = None


class Usage(Contract):
    """Tokens spent and what they cost."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        pairs = zip(self.model_dump().items(), other.model_dump().values(), strict=True)
        return Usage(**{name: mine + theirs for (name, mine), theirs in pairs})


class RunRecord(Contract):
    """A run as Redis knows it; readers ignore fields of a newer version."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: RunId
    thread_id: ThreadId
    agent: str
    status: RunStatus
    queue: str = "default"
    priority: int = 128
    epoch: int = 0
    step: int = 0
    attempts: int = 0
    commits: int = 0
    events: int = 0
    created: int = 0
    updated: int = 0
    started: int | None = None
    finished: int | None = None
    waiting: WaitingReason | None = None
    wake: int | None = None
    start_at: int | None = None
    deadline: int | None = None
    termination: Termination | None = None
    cancel: str | None = None
    worker: str | None = None
    fence: int = 0
    tenant: str | None = None
    idempotency_key: str | None = None
    parent: Parent | None = None
    usage: Usage = Usage()
    request: dict[str, Any] = Field(default_factory=dict)


class ThreadRecord(Contract):
    """A thread as Redis knows it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    thread_id: ThreadId
    agent: str = "default"
    open: RunId | None = None
    last: RunId | None = None
    epoch: int = 0
    fence: int = 0
    seq: int = 0
    mark: int = 0
    created: int = 0
    updated: int = 0
    parent: str | None = None


class CallRecord(Contract):
    """A tool call in the journal: its result is not in the log yet."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    call_id: CallId
    status: CallStatus
    name: str = ""
    index: int = 0
    text: str | None = None
    ticket: Ticket | None = None
    ticket_status: TicketStatus | None = None
    decision: Decision | None = None


def parse(model: type[Model], data: Mapping[str, Any]) -> Model:
    """A contract from untrusted data; the first mistake is told in one line."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise invalid(model.__name__, error) from None


def invalid(what: str, error: ValidationError) -> InvalidInput:
    """Pydantic's findings as one line."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    others = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return InvalidInput(f"{what}{'.' + where if where else ''}: {first['msg']}{others}")

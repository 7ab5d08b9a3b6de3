"""What happened, as one union of events; readers keep the types they do not know."""

from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from postroom.mailbox.contracts import Contract, Ticket, Usage
from postroom.mailbox.lifecycle import TerminationKind, WaitingReason


class Event(Contract):
    """Base of all; a field of a newer version is ignored, the step is 0 outside of any."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    step: int = 0


class RunStart(Event):
    """A worker has taken the run up, for the first time or again."""

    type: Literal["run_start"] = "run_start"
    thread_id: str = ""
    run_id: str = ""
    agent: str = ""
    worker: str = ""
    attempt: int = 0
    parent_run_id: str | None = None


class RunFinish(Event):
    """The one terminal event of a run, with its outcome."""

    type: Literal["run_finish"] = "run_finish"
    termination: TerminationKind
    code: str | None = None
    message: str | None = None
    result: JsonValue = None


class RunWaiting(Event):
    """The run waits and holds no worker; the tickets say for whom."""

    type: Literal["run_waiting"] = "run_waiting"
    reason: WaitingReason
    wake: int | None = None
    tickets: tuple[Ticket, ...] = ()
    message: str | None = None


class RunRequeued(Event):
    """The run wants a worker again: after a crash, a drain, a decision, mail, or in time."""

    type: Literal["run_requeued"] = "run_requeued"
    reason: str
    attempts: int = 0
    at: int | None = None


class CancelRequested(Event):
    """Somebody asked the running run to stop."""

    type: Literal["cancel_requested"] = "cancel_requested"
    reason: str


class DecisionReceived(Event):
    """A ticket was decided."""

    type: Literal["decision_received"] = "decision_received"
    id: str
    call: str
    action: str
    by: str | None = None


class TicketExpired(Event):
    """Nobody decided in time."""

    type: Literal["ticket_expired"] = "ticket_expired"
    call: str


class MailReceived(Event):
    """Mail was folded into the run."""

    type: Literal["mail_received"] = "mail_received"
    ids: tuple[str, ...] = ()


class StepStart(Event):
    """A step begins."""

    type: Literal["step_start"] = "step_start"
    message_id: str = ""


class StepEnd(Event):
    """A step is over; each start has one."""

    type: Literal["step_end"] = "step_end"


class TextDelta(Event):
    """More words of the answer."""

    type: Literal["text_delta"] = "text_delta"
    delta: str


class ReasoningDelta(Event):
    """More words of the reasoning."""

    type: Literal["reasoning_delta"] = "reasoning_delta"
    delta: str


class ReasoningEncryptedValue(Event):
    """Reasoning the provider keeps sealed."""

    type: Literal["reasoning_encrypted_value"] = "reasoning_encrypted_value"
    encrypted_value: str


class ToolCallStart(Event):
    """The model begins a tool call."""

    type: Literal["tool_call_start"] = "tool_call_start"
    id: str
    name: str


class ToolCallDelta(Event):
    """More of a call's arguments."""

    type: Literal["tool_call_delta"] = "tool_call_delta"
    id: str
    args_delta: str


class ToolCallReady(Event):
    """A call's arguments are complete."""

    type: Literal["tool_call_ready"] = "tool_call_ready"
    id: str
    name: str
    arguments: JsonValue = None


class ToolCallStreamDelta(Event):
    """Output of a tool while it works."""

    type: Literal["tool_call_stream_delta"] = "tool_call_stream_delta"
    id: str
    name: str
    delta: str


class ToolCallDone(Event):
    """A call has ended or is suspended."""

    type: Literal["tool_call_done"] = "tool_call_done"
    id: str
    outcome: Literal["suspended", "succeeded", "failed", "cancelled"]
    message_id: str = ""
    result: JsonValue = None


class ToolCallResumed(Event):
    """A suspended call went on and ended; stands in place of `tool_call_done`."""

    type: Literal["tool_call_resumed"] = "tool_call_resumed"
    target_id: str
    result: JsonValue = None


class ToolCallCancel(Event):
    """A call the stream had begun is dropped."""

    type: Literal["tool_call_cancel"] = "tool_call_cancel"
    id: str
    name: str
    reason: str


class StreamReset(Event):
    """Forget the partial output of this step."""

    type: Literal["stream_reset"] = "stream_reset"
    reason: str


class InferenceComplete(Event):
    """The model has answered."""

    type: Literal["inference_complete"] = "inference_complete"
    model: str
    usage: Usage | None = None
    duration_ms: int = 0


class StateSnapshot(Event):
    """The plugin state, whole."""

    type: Literal["state_snapshot"] = "state_snapshot"
    snapshot: JsonValue = None


class StateDelta(Event):
    """The plugin state, as a JSON patch."""

    type: Literal["state_delta"] = "state_delta"
    delta: list[JsonValue] = Field(default_factory=list)


class MessagesSnapshot(Event):
    """The messages, whole."""

    type: Literal["messages_snapshot"] = "messages_snapshot"
    messages: list[JsonValue] = Field(default_factory=list)


class ActivitySnapshot(Event):
    """The state of something shown beside the conversation."""

    type: Literal["activity_snapshot"] = "activity_snapshot"
    message_id: str
    activity_type: str
    content: JsonValue = None
    replace: bool = True


class ActivityDelta(Event):
    """A change to something shown beside the conversation."""

    type: Literal["activity_delta"] = "activity_delta"
    message_id: str
    activity_type: str
    patch: list[JsonValue] = Field(default_factory=list)


class ChildEvent(Event):
    """Something that happened to a child of the run, as its journal has it; best effort, but for what it waits for."""

    type: Literal["child_event"] = "child_event"
    child_run_id: str
    child_thread_id: str = ""
    agent: str = ""
    call_id: str | None = None
    event: dict[str, JsonValue] = Field(default_factory=dict)


class ErrorRaised(Event):
    """Something went wrong that the run survives; the end of a run is `run_finish`, always."""

    type: Literal["error"] = "error"
    message: str
    code: str | None = None


KnownEvent = (
    RunStart
    | RunFinish
    | RunWaiting
    | RunRequeued
    | CancelRequested
    | DecisionReceived
    | TicketExpired
    | MailReceived
    | StepStart
    | StepEnd
    | TextDelta
    | ReasoningDelta
    | ReasoningEncryptedValue
    | ToolCallStart
    | ToolCallDelta
    | ToolCallReady
    | ToolCallStreamDelta
    | ToolCallDone
    | ToolCallResumed
    | ToolCallCancel
    | StreamReset
    | InferenceComplete
    | StateSnapshot
    | StateDelta
    | MessagesSnapshot
    | ActivitySnapshot
    | ActivityDelta
    | ChildEvent
    | ErrorRaised
)

TYPES: dict[str, type[Event]] = {kind.model_fields["type"].default: kind for kind in get_args(KnownEvent)}

_adapter: TypeAdapter[KnownEvent] = TypeAdapter(
    Annotated[KnownEvent, Field(discriminator="type")], config=ConfigDict(defer_build=True)
)


class UnknownEvent(Event):
    """An event of a newer version, kept as it is."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str


def parse_event(data: dict[str, Any]) -> KnownEvent | UnknownEvent:
    """The event of plain data; an unknown type, or a known one of an unknown shape, is kept rather than lost."""
    try:
        return _adapter.validate_python(data)
    except ValidationError:
        return UnknownEvent.model_validate(data)

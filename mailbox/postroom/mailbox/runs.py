"""What is asked for and what became of it: requests, letters, and the records of runs, threads and calls."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, model_validator

from postroom.mailbox.contract import (
    AgentId,
    CallId,
    Contract,
    FreeId,
    MailId,
    Metadata,
    Milliseconds,
    QueueName,
    RunId,
    ThreadId,
    Webhook,
)
from postroom.mailbox.keys import MAX_ID_BYTES
from postroom.mailbox.lifecycle import CallStatus, RunStatus, TerminationKind, TicketStatus, WaitingReason
from postroom.mailbox.messages import FrontendTool, Message
from postroom.mailbox.tickets import Decision, Ticket

# Ids that Redis gives out itself; nobody else's may look like one that is still to come.
RESERVED_RUN_IDS = {"mail-": "mail starts", "call-": "postroom_submit starts"}


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
    """Who started a run on behalf of whom.

    `reports` says how the parent hears of it: as the `answer` to a call that waits for it, by `mail` to its thread, or
    not at all. `depth` counts the runs above.
    """

    thread_id: ThreadId
    run_id: RunId
    call_id: CallId | None = None
    agent: AgentId | None = None
    reports: Literal["answer", "mail"] | None = None
    depth: Annotated[int, Field(ge=1)] = 1


class Budget(Contract):
    """What a run may spend at most, on top of what its agent allows."""

    max_tokens: Annotated[int, Field(gt=0)] | None = None
    max_usd: Annotated[float, Field(gt=0)] | None = None


class RunRequest(Contract):
    """What a caller asks for; ids and defaults are filled in before it is stored."""

    run_id: RunId
    thread_id: ThreadId
    agent: AgentId | None = None
    messages: tuple[Message, ...] = ()
    on_busy: OnBusy = OnBusy.ENQUEUE
    on_waiting: OnWaiting = OnWaiting.SUPERSEDE
    idempotency_key: FreeId | None = None
    queue: QueueName = "default"
    priority: Annotated[int, Field(ge=0, le=255)] = 128
    start_at: Milliseconds | None = None
    deadline: Milliseconds | None = None
    metadata: Metadata = Field(default_factory=dict)
    tenant: FreeId | None = None
    webhook: Webhook | None = None
    parent: Parent | None = None
    budget: Budget | None = None
    overrides: dict[str, JsonValue] = Field(default_factory=dict)
    frontend_tools: Annotated[tuple[FrontendTool, ...], Field(max_length=128)] = ()

    @model_validator(mode="after")
    def _can_be_done(self) -> "RunRequest":
        for prefix, given_to in RESERVED_RUN_IDS.items():
            if self.run_id.startswith(prefix):
                raise ValueError(f"run ids that begin with {prefix!r} are given to runs that {given_to}")
        if self.start_at is not None and self.on_busy is not OnBusy.ENQUEUE:
            raise ValueError("a delayed run can only be enqueued; leave on_busy at 'enqueue'")
        if self.on_busy is OnBusy.STEER and not self.messages:
            raise ValueError("steering needs at least one message")
        return self


class Letter(Contract):
    """A message on its way to a thread's mailbox; its id makes a second sending harmless.

    With a `run_id` it is for that run alone, and refused once the run has ended.
    """

    id: MailId
    thread_id: ThreadId
    message: Message
    sender: Annotated[str, Field(max_length=MAX_ID_BYTES)] = ""
    kind: Literal["message", "steer", "task"] = "message"
    agent: AgentId | None = None
    queue: QueueName = "default"
    run_id: RunId | None = None


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
        # Both were checked when they were made; this runs in every step.
        theirs = other.__dict__
        return Usage.model_construct(**{name: value + theirs[name] for name, value in self.__dict__.items()})


def spent(usage: Usage) -> dict[str, Any]:
    """What was spent, as plain data; what was not is left out."""
    return {name: value for name, value in usage.__dict__.items() if value}


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
    webhook: str | None = None
    idempotency_key: str | None = None
    parent: Parent | None = None
    usage: Usage = Usage()
    request: dict[str, Any] = Field(default_factory=dict)


class ThreadRecord(Contract):
    """A thread as Redis knows it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    thread_id: ThreadId
    agent: str = "default"
    queue: str = "default"
    open: RunId | None = None
    last: RunId | None = None
    epoch: int = 0
    fence: int = 0
    seq: int = 0
    mark: int = 0
    created: int = 0
    updated: int = 0
    parent: str | None = None
    forked_at: int | None = None
    usage: Usage = Usage()


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

"""Commits: what one step writes, whole or not at all, by the worker whose fence is current."""

from dataclasses import dataclass, field
from typing import Any

from postroom.mailbox import codec, errands, inbox, journal, log
from postroom.mailbox.contracts import Termination
from postroom.mailbox.doorbell import Doorbell, doorbell
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.keys import check_id, check_token
from postroom.mailbox.lifecycle import TERMINAL, CallStatus, WaitingReason
from postroom.mailbox.ops import Op, counted, on_thread, pairs

Plain = dict[str, Any]

# Fields of the run record that a step may set; the rest belongs to the scripts.
STEP_FIELDS = frozenset({"step", "usage", "agent_now", "input_seq", "config", "phase", "output", "children", "remote"})
THREAD_FIELDS = frozenset({"agent", "mark", "parent", "title", "usage"})


@dataclass(frozen=True, slots=True)
class Owner:
    """Who commits: the activation's thread, run and fence."""

    thread_id: str
    run_id: str
    fence: int

    def __post_init__(self) -> None:
        check_token(self.run_id, "run id")


@dataclass(slots=True)
class Batch:
    """The writes of one step, gathered before they are sent; `number` counts the commits of a run from 1."""

    number: int
    step: int = 0
    limit: int = codec.MAX_BYTES
    max_events: int = 10_000
    run_fields: dict[str, Any] = field(default_factory=dict)
    thread_fields: dict[str, Any] = field(default_factory=dict)
    messages: list[list[Any]] = field(default_factory=list)
    calls: dict[str, Any] = field(default_factory=dict)
    calls_dropped: list[str] = field(default_factory=list)
    clear_calls: bool = False
    run_state: dict[str, bytes] = field(default_factory=dict)
    run_state_dropped: list[str] = field(default_factory=list)
    thread_state: dict[str, bytes] = field(default_factory=dict)
    thread_state_dropped: list[str] = field(default_factory=list)
    outputs: dict[str, bytes] = field(default_factory=dict)
    read_mail: list[str] = field(default_factory=list)
    events: list[list[Any]] = field(default_factory=list)
    owed: list[list[Any]] = field(default_factory=list)
    sent: dict[str, str] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)
    children_dropped: list[str] = field(default_factory=list)

    def say(self, message: Plain, covers: tuple[int, int] | None = None) -> "Batch":
        """Appends a message to the log; a summary says from where to where it `covers` what was said before."""
        self.messages.append(log.fields(message, self.step, self.limit, covers))
        return self

    def tell(self, event: Plain) -> "Batch":
        """Appends an event to the journal; the one that ends a run is written with the end itself."""
        if event["type"] == TERMINAL:
            raise InvalidInput("a step cannot tell run_finish; finish the run instead")
        self.events.append(journal.fields(event, self.limit, self.step))
        return self

    def note_call(self, call_id: str, status: CallStatus, **more: Any) -> "Batch":
        """Moves a tool call in the journal; `more` may hold name, index, text, body, ticket, expires, question."""
        self.calls[f"status:{check_id(call_id, 'call id')}"] = status.value
        for name, value in more.items():
            self.calls[f"{name}:{call_id}"] = value
        return self

    def raise_ticket(self, call_id: str, ticket: Plain) -> "Batch":
        """Suspends a call behind a ticket somebody must decide; an earlier decision for the call no longer counts."""
        self.note_call(call_id, CallStatus.SUSPENDED, ticket="open", question=codec.encode(ticket, self.limit))
        self.calls_dropped += [f"{name}:{call_id}" for name in ("decision", "decided", "expires")]
        if ticket.get("expires_at") is not None:
            self.calls[f"expires:{call_id}"] = ticket["expires_at"]
        self.calls[f"key:{call_id}"] = ticket.get("action_key") or ""
        self.calls[f"ticket_id:{call_id}"] = ticket["id"]
        self.calls[f"call:{ticket['id']}"] = call_id
        return self

    def keep_output(self, call_id: str, text: str) -> "Batch":
        """Keeps the whole of a result that was too long for the log."""
        self.outputs[f"{self.step}/{call_id}"] = codec.fitting(text, codec.READ_BYTES).encode()
        return self

    def read(self, number: int) -> "Batch":
        """Takes a mail out of the mailbox."""
        self.read_mail.append(f"{number}-0")
        return self

    def send(self, errand: errands.Errand) -> "Batch":
        """Owes somebody an errand: it is carried out once the commit is through, and not at all if it is not."""
        self.owed.append(errands.fields(errand, self.limit))
        if errand.kind is errands.Kind.MAIL:
            self.sent[errand.id] = errand.to
        if errand.child:
            self.run_fields["children"] = 1
            self.children[errand.run] = f"{errand.child} {errand.to}"
        return self

    def args(self) -> list[Any]:
        """The batch as the scripts read it: only the sections that hold something, "clear-calls" before the rest."""
        if self.run_fields and not self.run_fields.keys() <= STEP_FIELDS:
            raise _not_ours(self.run_fields.keys() - STEP_FIELDS, "run")
        if self.thread_fields and not self.thread_fields.keys() <= THREAD_FIELDS:
            raise _not_ours(self.thread_fields.keys() - THREAD_FIELDS, "thread")
        flat: list[Any] = [self.number, self.max_events, 0]
        sections = 0
        if self.clear_calls:
            flat += ("clear-calls", 0)
            sections += 1
        for kind, many in (("say", self.messages), ("tell", self.events), ("send", self.owed)):
            sections += len(many)
            for items in many:
                flat += (kind, len(items), *items)
        for kind, name in _LISTS:
            if items := getattr(self, name):
                sections += 1
                flat += (kind, len(items), *items)
        for kind, name in _MAPS:
            if fields := getattr(self, name):
                sections += 1
                flat += (kind, 2 * len(fields), *pairs(fields))
        flat[2] = sections
        return flat


# Sections of a batch and where they are gathered. What is dropped goes before what is set.
_LISTS = (
    ("drop-call", "calls_dropped"),
    ("drop-state", "run_state_dropped"),
    ("drop-thread-state", "thread_state_dropped"),
    ("drop-child", "children_dropped"),
    ("read", "read_mail"),
)
_MAPS = (
    ("run", "run_fields"),
    ("thread", "thread_fields"),
    ("call", "calls"),
    ("state", "run_state"),
    ("thread-state", "thread_state"),
    ("output", "outputs"),
    ("sent", "sent"),
    ("child", "children"),
)


@dataclass(slots=True)
class Arrivals:
    """A commit's reply: what became of it and what has arrived meanwhile, so the loop never polls."""

    outcome: str
    seq: int
    events: int
    cancel: str
    decisions: int
    mail: list[inbox.Mail]
    outbox: int = 0
    doorbell: Doorbell | None = None


def commit(owner: Owner, batch: Batch, now: int | None = None) -> Op[Arrivals]:
    """Writes a step."""
    return on_thread("commit", owner.thread_id, now, [owner.run_id, owner.fence, *batch.args()], _arrivals)


def suspend(
    owner: Owner,
    batch: Batch,
    reason: WaitingReason,
    wake: int | None = None,
    event: Plain | None = None,
    now: int | None = None,
) -> Op[Arrivals]:
    """Writes a step after which the run waits; the outcome `continue` means that what it wanted is already there."""
    if reason is WaitingReason.TIME and wake is None:
        raise InvalidInput("a run that waits for a time must say which: give wake")
    told = journal.fields({"type": "run_waiting", **(event or {})}, batch.limit, batch.step)[2:]
    args = [owner.run_id, owner.fence, *batch.args(), reason.value, "" if wake is None else wake, *counted(told)]
    return on_thread("suspend", owner.thread_id, now, args, _arrivals)


def finish(
    owner: Owner, batch: Batch, termination: Termination, result: Any = None, now: int | None = None
) -> Op[Arrivals]:
    """Writes the last step and ends the run; `continue` means mail came first and the run must read it."""
    told = journal.fields({"type": "run_finish", "result": result}, batch.limit, batch.step)[2:]
    how = [termination.kind.value, termination.code or "", termination.message or ""]
    args = [owner.run_id, owner.fence, *batch.args(), *how, *counted(told)]
    return on_thread("finish", owner.thread_id, now, args, _arrivals)


def _arrivals(reply: Any) -> Arrivals:
    outcome, seq, events, cancel, decisions, mail, outbox, *bell = reply
    return Arrivals(
        outcome.decode(),
        seq,
        events,
        cancel.decode(),
        decisions,
        [inbox.mail(raw) for raw in mail],
        outbox,
        doorbell(bell[0]) if bell else None,
    )


def _not_ours(names: set[str], what: str) -> InvalidInput:
    return InvalidInput(f"a step may not set {', '.join(sorted(names))} of its {what}")

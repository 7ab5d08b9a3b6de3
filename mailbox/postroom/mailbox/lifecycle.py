"""The three state machines, as tables. Scripts are given the one of calls; tests hold them to the other two."""

from enum import StrEnum

from postroom.mailbox.errors import MoveRefused


class RunStatus(StrEnum):
    """Where a run is."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"


class CallStatus(StrEnum):
    """Where a tool call is."""

    NEW = "new"
    RUNNING = "running"
    SUSPENDED = "suspended"
    RESUMING = "resuming"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TicketStatus(StrEnum):
    """Where an approval ticket is."""

    OPEN = "open"
    DECIDED = "decided"
    EXPIRED = "expired"


class TerminationKind(StrEnum):
    """Why a run is done."""

    NATURAL_END = "natural_end"
    BEHAVIOR_REQUESTED = "behavior_requested"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    ERROR = "error"


class WaitingReason(StrEnum):
    """What a waiting run waits for."""

    APPROVAL = "approval"
    INPUT = "input"
    TASKS = "tasks"
    TIME = "time"
    MANUAL = "manual"


RUN: dict[str, frozenset[str]] = {
    RunStatus.QUEUED: frozenset({RunStatus.RUNNING, RunStatus.DONE}),
    RunStatus.RUNNING: frozenset({RunStatus.QUEUED, RunStatus.WAITING, RunStatus.DONE}),
    RunStatus.WAITING: frozenset({RunStatus.QUEUED, RunStatus.DONE}),
    RunStatus.DONE: frozenset(),
}

CALL: dict[str, frozenset[str]] = {
    CallStatus.NEW: frozenset(CallStatus) - {CallStatus.NEW},
    CallStatus.RUNNING: frozenset(
        {CallStatus.SUSPENDED, CallStatus.SUCCEEDED, CallStatus.FAILED, CallStatus.CANCELLED}
    ),
    # A decision may itself be the result: then nothing is resumed.
    CallStatus.SUSPENDED: frozenset(
        {CallStatus.RESUMING, CallStatus.SUCCEEDED, CallStatus.FAILED, CallStatus.CANCELLED}
    ),
    CallStatus.RESUMING: frozenset(
        {CallStatus.RUNNING, CallStatus.SUSPENDED, CallStatus.SUCCEEDED, CallStatus.FAILED, CallStatus.CANCELLED}
    ),
    CallStatus.SUCCEEDED: frozenset(),
    CallStatus.FAILED: frozenset(),
    CallStatus.CANCELLED: frozenset(),
}

TICKET: dict[str, frozenset[str]] = {
    TicketStatus.OPEN: frozenset({TicketStatus.DECIDED, TicketStatus.EXPIRED}),
    TicketStatus.DECIDED: frozenset(),
    TicketStatus.EXPIRED: frozenset(),
}

# Mail wakes a run that waits for words or for its tasks, not one that waits for an approval, a time or an operator.
WOKEN_BY_MAIL = frozenset({WaitingReason.INPUT, WaitingReason.TASKS})

# The event that ends a run; there is exactly one.
TERMINAL = "run_finish"

CALL_DONE = frozenset(status for status, following in CALL.items() if not following)


def may_move(table: dict[str, frozenset[str]], old: str, new: str) -> bool:
    """Whether the table has the move; staying where one is counts as a move, since a retry does that."""
    return old == new or new in table[old]


def move(table: dict[str, frozenset[str]], old: str, new: str) -> str:
    """The new status, or an error naming the move that does not exist."""
    if not may_move(table, old, new):
        raise MoveRefused(f"there is no move from {old} to {new}")
    return new

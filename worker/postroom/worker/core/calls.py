"""Tool calls: what was asked, where it stands, and what became of it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from postroom.mailbox.contracts import Decision, Ticket
from postroom.mailbox.errands import Errand
from postroom.mailbox.lifecycle import CallStatus
from postroom.worker.core.command import NOTHING, Command

Plain = dict[str, Any]
ERROR, SUCCESS, PENDING = "error", "success", "pending"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call. `ends` ends the run with this outcome's data, `handoff` names who goes on.

    A pending outcome has a `ticket`: somebody must decide before the call can go on. `full` is the whole text when what
    the model is shown was cut.
    """

    status: Literal["success", "error", "pending"]
    data: Any = None
    message: str | None = None
    metadata: Plain = field(default_factory=dict)
    ticket: Ticket | None = None
    command: Command = NOTHING
    ends: bool = False
    handoff: str = ""
    full: str = ""

    @property
    def failed(self) -> bool:
        """Whether the tool did not do what was asked."""
        return self.status == ERROR


def failure(code: str, message: str, **metadata: Any) -> Outcome:
    """An error the model is told about."""
    return Outcome("error", {"error": {"code": code, "message": message}}, message, metadata)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call whose result is not in the log yet. `outcome` is there once it has finished.

    `decision` is a person's answer to its ticket. `errands` leave with the note that the call is suspended: whoever it
    waits for must not be sent for without it, nor it wait without them.
    """

    id: str
    name: str
    arguments: Plain | str
    index: int
    status: CallStatus
    ticket: Ticket | None = None
    decision: Decision | None = None
    outcome: Outcome | None = None
    errands: tuple[Errand, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """The call must not happen, and the run ends for it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """The call waits for somebody's decision."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class SetResult:
    """The call has this outcome without being carried out."""

    outcome: Outcome


Intercept = Block | Suspend | SetResult
_RANK: dict[type, int] = {Block: 0, Suspend: 1, SetResult: 2}


def strongest(intercepts: list[Intercept]) -> Intercept | None:
    """The one that counts: a block over a suspension over a result, the first among equals."""
    return min(intercepts, key=lambda each: _RANK[type(each)], default=None)

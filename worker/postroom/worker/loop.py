"""What a loop is: given where a run stands, it takes one step and says what should follow.

The activation knows nothing of models or tools, and a loop knows nothing of Redis: between them pass plain values.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

from postroom.mailbox.contracts import Termination, Ticket
from postroom.mailbox.lifecycle import TerminationKind, WaitingReason

Plain = dict[str, Any]
NATURAL_END = Termination(kind=TerminationKind.NATURAL_END)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands before a step: `step` counts from 1, `messages` is what a model would see.

    `decisions` are the answers to tickets raised before, each with the `call_id` it belongs to.
    """

    thread_id: str
    run_id: str
    agent: str
    step: int
    messages: tuple[Plain, ...]
    request: Plain
    decisions: tuple[Plain, ...] = ()


@dataclass(frozen=True, slots=True)
class Continue:
    """There is more to do."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The run waits for somebody or something and gives its worker back."""

    reason: WaitingReason
    wake: int | None = None
    tickets: tuple[Ticket, ...] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over."""

    termination: Termination = NATURAL_END
    result: Any = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One step's outcome: what was said, what happened, what follows; `settles_calls` if no call is open."""

    messages: tuple[Plain, ...] = ()
    events: tuple[Plain, ...] = ()
    then: Continue | Wait | Finish = field(default_factory=Continue)
    settles_calls: bool = False


class Loop(Protocol):
    """Takes steps."""

    async def step(self, standing: Standing) -> Turn:
        """One step; it may be cancelled at any await, and is then not committed."""
        ...

"""What a loop is: given where a run stands, it takes one turn and says what should follow.

The activation knows nothing of models or tools, and a loop knows nothing of Redis: between them pass plain values.
A turn is what one commit writes. A step is one turn, or several when it has tools to run.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from postroom.mailbox.contracts import Termination, Ticket, Usage
from postroom.mailbox.errands import Errand
from postroom.mailbox.lifecycle import TerminationKind, WaitingReason
from postroom.mailbox.log import Entry
from postroom.worker.core.calls import OpenCall
from postroom.worker.core.compaction import Summary

if TYPE_CHECKING:
    from postroom.dispatcher import AsyncDispatcher

Plain = dict[str, Any]
NATURAL_END = Termination(kind=TerminationKind.NATURAL_END)


@dataclass(slots=True)
class Standing:
    """Where a run stands before a turn. It can be made again from Redis at any time, all but `memory`.

    `step` counts from 1; `step_open` if its start was already told, by this worker or by one that died. `log` is what
    was said and is stored; `arrived` is what came since: the input of a new run, mail. `asked` is the assistant's
    message whose `calls` are not all answered. `memory` is what the loop's last turn left for itself;
    `changed` if somebody else has changed the thread's state since.
    """

    thread_id: str
    run_id: str
    agent: str
    step: int
    log: tuple[Entry, ...]
    arrived: tuple[Plain, ...]
    request: Plain
    asked: Plain | None = None
    calls: tuple[OpenCall, ...] = ()
    step_open: bool = False
    attempt: int = 0
    started: int = 0
    usage: Usage = field(default_factory=Usage)
    thread_usage: Usage = field(default_factory=Usage)
    config: str = ""
    run_state: Mapping[str, Any] = field(default_factory=dict)
    thread_state: Mapping[str, Any] = field(default_factory=dict)
    memory: "Memory | None" = None
    changed: bool = False
    _messages: tuple[Plain, ...] | None = field(default=None, repr=False, compare=False)

    @property
    def messages(self) -> tuple[Plain, ...]:
        """What a model would see; a long thread is gone through once in a turn."""
        if self._messages is None:
            self._messages = (*[entry.message for entry in self.log], *self.arrived)
        return self._messages


class Memory(Protocol):
    """What a loop keeps from turn to turn, for as long as one activation lasts."""

    def close(self) -> None:
        """The activation is over."""
        ...


class Pen(Protocol):
    """How a loop writes before its turn is over.

    `step_open` while a step was begun and not yet ended; `calls` are the open ones as the journal has them.
    """

    step_open: bool
    calls: dict[str, OpenCall]

    @property
    def dispatcher(self) -> "AsyncDispatcher":
        """A client on the worker's own connection, for tools and plugins."""
        ...

    def tell(self, event: Plain) -> None:
        """Shows an event to whoever follows the run: words within 30 ms, news within 250, or with the next commit."""
        ...

    async def mail_came(self) -> bool:
        """Whether mail has come that this turn was not given, as far as somebody said so."""
        ...

    async def jot(self, calls: tuple[OpenCall, ...]) -> None:
        """Journals where calls stand now, while others go on."""
        ...

    def reach(self, point: str) -> None:
        """Passes a named point at which tests may let the process die."""
        ...


@dataclass(frozen=True, slots=True)
class Continue:
    """There is more to do."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The run waits for somebody or something and gives its worker back; `message` is what somebody is asked."""

    reason: WaitingReason
    wake: int | None = None
    tickets: tuple[Ticket, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over."""

    termination: Termination = NATURAL_END
    result: Any = None


@dataclass(slots=True)
class Turn:
    """What one commit writes: what was said, what happened, where the calls stand, what follows.

    A turn that `folds` stores what had arrived; while calls are open that must wait, since nothing may stand between a
    call and its result. `calls` are those still open afterwards. State is given as the values that changed. `errands`
    are owed to other threads with the commit itself; `closed` are children that the run has heard the last of;
    `effects` are carried out once the commit is through. From a turn that says `remote` on, the run has something at
    work elsewhere that only a worker can stop.
    """

    messages: tuple[Plain, ...] = ()
    events: tuple[Plain, ...] = ()
    then: Continue | Wait | Finish = field(default_factory=Continue)
    folds: bool = True
    calls: tuple[OpenCall, ...] = ()
    arrived: tuple[Plain, ...] | None = None
    summary: Summary | None = None
    usage: Usage | None = None
    config: str = ""
    agent: str = ""
    run_state: Mapping[str, Any] = field(default_factory=dict)
    thread_state: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    errands: tuple[Errand, ...] = ()
    closed: tuple[str, ...] = ()
    effects: tuple[Callable[[], Awaitable[None]], ...] = ()
    memory: "Memory | None" = None
    remote: bool = False


class Loop(Protocol):
    """Takes turns."""

    async def step(self, standing: Standing, pen: Pen) -> Turn:
        """One turn; it may be cancelled at any await, and is then not committed."""
        ...


@runtime_checkable
class Aborting(Protocol):
    """A loop that may have something at work elsewhere."""

    async def abort(self, standing: Standing, pen: Pen) -> Mapping[str, Any]:
        """The run is stopped and takes no other turn: stops what works for it; the thread's state that changes."""
        ...

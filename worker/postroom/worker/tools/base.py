"""What a tool is: a name, a schema, a way to be carried out, and what the loop must know to do that safely."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from postroom.mailbox.contracts import Decision, Risk, Ticket
from postroom.worker.core.calls import Outcome
from postroom.worker.core.state import State

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a call that failed for a passing reason is repeated within its step, and how long in between."""

    times: int = 0
    first_wait: float = 0.2
    longest_wait: float = 5.0


@dataclass(frozen=True, slots=True)
class Approval:
    """What a person is asked before a call happens; `action_key` is what allow_always remembers."""

    message: str = ""
    risk: Risk = Risk.SENSITIVE
    action_key: str | None = None
    expires_in: float | None = None
    on_expiry: str = "deny"


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the call it serves.

    `idempotency_key` is the same when the call is repeated after a crash. `decision` answers the ticket the call raised
    before. `tell` shows progress to whoever watches the run. `state` is a snapshot: return updates to change it.
    """

    thread_id: str
    run_id: str
    agent: str
    step: int
    call_id: str
    tool: str
    attempt: int = 1
    deadline: int | None = None
    tenant: str | None = None
    state: State = field(default_factory=State)
    decision: Decision | None = None
    ticket: Ticket | None = None
    tell: Callable[[str], None] = field(default=lambda _: None)

    @property
    def idempotency_key(self) -> str:
        """The same for every execution of this call."""
        return f"{self.run_id}/{self.step}/{self.call_id}"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `run` is given checked arguments; `check` turns raw ones into those, or raises InvalidArguments.

    `timeout` is in seconds, `output_limit` in characters. `parallel_safe` tools of one step run side by side. An
    `idempotent` one is repeated when a worker died in the middle of it; of another one the model is told that its
    outcome is unknown. `needs_approval` is given the raw arguments.
    """

    name: str
    description: str
    parameters: Plain
    run: Callable[[Any, ToolContext], Awaitable[Outcome]]
    check: Callable[[Plain], Any] = field(default=lambda arguments: arguments)
    timeout: float | None = None
    parallel_safe: bool = True
    idempotent: bool = False
    output_limit: int | None = None
    retry: Retry = Retry()
    needs_approval: Callable[[Plain], Approval | None] | None = None
    kind: str = "other"

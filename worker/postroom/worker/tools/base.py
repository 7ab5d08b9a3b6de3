"""What a tool is: a name, a schema, a way to be carried out, and what the loop must know to do that safely."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from postroom.mailbox.contracts import Decision, Risk, Ticket
from postroom.worker.core.calls import Outcome
from postroom.worker.core.state import State
from postroom.worker.tools.errors import ToolFailed

if TYPE_CHECKING:
    from postroom.dispatcher import AsyncDispatcher

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


def _now() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the call it serves.

    `idempotency_key` is the same when the call is repeated after a crash. `decision` answers the ticket the call raised
    before. `tell` shows progress to whoever watches the run. `state` is a snapshot: return updates to change it.
    `now` and `deadline` are in milliseconds. `request` is what the run was asked for, `calls` are all calls of
    the step, by id and name.
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
    request: Plain = field(default_factory=dict)
    calls: tuple[tuple[str, str], ...] = ()
    client: "AsyncDispatcher | None" = None
    now: int = field(default_factory=_now)

    @property
    def idempotency_key(self) -> str:
        """The same for every execution of this call."""
        return f"{self.run_id}/{self.step}/{self.call_id}"

    @property
    def dispatcher(self) -> "AsyncDispatcher":
        """A client on the worker's own connection; what it does happens at once, whatever becomes of the step."""
        if self.client is None:
            raise ToolFailed("there is no server at hand", code="no_server")
        return self.client


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `run` is given checked arguments; `check` turns raw ones into those, or raises InvalidArguments.

    `timeout` is in seconds, `output_limit` in characters. `parallel_safe` tools of one step run side by side. An
    `idempotent` one is repeated when a worker died in the middle of it; of another one the model is told that its
    outcome is unknown. `needs_approval` is given the raw arguments. `function` is what the author wrote, for tests.
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
    function: Callable[..., Any] | None = None

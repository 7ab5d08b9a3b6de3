"""Delegation: what a parent passes on to a child, and what it makes of the answer."""

from collections.abc import Iterable
from typing import Any

from postroom.mailbox.contracts import Budget, Decision, Ticket, Usage
from postroom.mailbox.errands import Errand, Kind
from postroom.mailbox.lifecycle import WaitingReason
from postroom.worker.core.calls import OpenCall, Outcome
from postroom.worker.core.command import Command
from postroom.worker.core.stop import MaxCost, RunStats, StopPolicy, TokenBudget, WallClock

Plain = dict[str, Any]

ACTION = "agent_delegate"
PREFIX = "delegate_run:"
TOOL_PREFIX = "agent_run_"
CHILD, USAGE = "child_run_id", "usage"


def reason(tickets: Iterable[Ticket]) -> WaitingReason:
    """What a run waits for: its children, unless a person is asked as well."""
    return WaitingReason.TASKS if all(ticket.action == ACTION for ticket in tickets) else WaitingReason.APPROVAL


def child_of(call: OpenCall) -> str:
    """The run a call waits for, or waited for."""
    ticket = call.ticket
    return ticket.id.removeprefix(PREFIX) if ticket and ticket.action == ACTION else ""


def answered(decision: Decision, ticket: Ticket) -> Outcome:
    """The outcome of a call whose child has ended, or in whose child's place somebody has answered."""
    child, result = ticket.id.removeprefix(PREFIX), decision.result
    if decision.id != child or not isinstance(result, dict):
        return Outcome("success", result, metadata={CHILD: child}, command=_stopped(child))
    data = {name: value for name, value in result.items() if name != USAGE}
    metadata = {CHILD: child, USAGE: result.get(USAGE) or {}}
    if result.get("status") == "completed":
        return Outcome("success", data, metadata=metadata)
    words = f"{result.get('agent_id')} {result.get('status')}: {result.get('error') or 'no reason given'}"
    return Outcome("error", data, words, metadata)


def recalled(call: OpenCall) -> Command:
    """Nobody waits for the child of this call any more."""
    return _stopped(child_of(call))


def _stopped(child: str) -> Command:
    return Command(errands=(Errand(Kind.CANCEL, child, child, child, code="parent_answered"),))


def spent(calls: Iterable[OpenCall]) -> Usage:
    """What the children of these calls have spent."""
    total = Usage()
    for call in calls:
        if call.outcome and (used := call.outcome.metadata.get(USAGE)) and CHILD in call.outcome.metadata:
            total += Usage.model_validate(used)
    return total


def counted(stats: RunStats, usage: Usage) -> RunStats:
    """The count with what children have spent: a budget is for the whole family."""
    return {
        **stats,
        "input_tokens": stats.get("input_tokens", 0) + usage.input_tokens,
        "output_tokens": stats.get("output_tokens", 0) + usage.output_tokens,
        "cost_usd": stats.get("cost_usd", 0.0) + usage.cost_usd,
    }


def policies(request: Plain) -> tuple[StopPolicy, ...]:
    """The limits that a run was given by its parent."""
    budget = request.get("budget") or {}
    found: list[StopPolicy] = []
    if "max_tokens" in budget:
        found.append(TokenBudget(max_total=budget["max_tokens"]))
    if "max_usd" in budget:
        found.append(MaxCost(max_usd=budget["max_usd"]))
    return tuple(found)


def share(stops: Iterable[StopPolicy], stats: RunStats, ways: int) -> Budget | None:
    """What is left of a run's budget, split so many ways; None when nothing is left."""
    tokens: list[float] = []
    dollars: list[float] = []
    spent_tokens = stats.get("input_tokens", 0) + stats.get("output_tokens", 0)
    for stop in stops:
        if isinstance(stop, TokenBudget):
            tokens.append((stop.max_total - spent_tokens) // ways)
        elif isinstance(stop, MaxCost):
            dollars.append((stop.max_usd - stats.get("cost_usd", 0.0)) / ways)
    if any(left <= 0 for left in (*tokens, *dollars)):
        return None
    return Budget(
        max_tokens=int(min(tokens)) if tokens else None,
        max_usd=min(dollars) if dollars else None,
    )


def deadline(stops: Iterable[StopPolicy], stats: RunStats, own: int | None) -> int | None:
    """When a child must have ended: no later than its parent must."""
    started = stats.get("started_ms")
    times = [] if own is None else [own]
    if started is not None:
        times += [started + int(stop.seconds * 1000) for stop in stops if isinstance(stop, WallClock)]
    return min(times, default=None)

"""What a tool may give back: plain data, or one of these when it wants more than to be read by the model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_core import PydanticSerializationError, from_json, to_json

from postroom.mailbox.contracts import Decision, DecisionAction, ResumeMode, Risk, Ticket
from postroom.worker.core.calls import Outcome, failure
from postroom.worker.core.command import Command
from postroom.worker.core.state import Update
from postroom.worker.tools.base import Plain, ToolContext
from postroom.worker.tools.errors import InvalidOutput


@dataclass(frozen=True, slots=True)
class Finish:
    """Ends the run with this output."""

    output: Any = None


@dataclass(frozen=True, slots=True)
class Handoff:
    """Lets another agent go on with the run."""

    agent: str
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Suspend:
    """Asks somebody before the call goes on.

    With `pass_decision_to_tool` the tool is called again and finds the answer in its context; with
    `replay_tool_call` likewise, for a plain yes; with `use_decision_as_tool_result` the answer is the result.
    `expires_in` is in seconds.
    """

    message: str
    action: str = "ask"
    response_schema: Plain | None = None
    resume_mode: ResumeMode = ResumeMode.PASS_DECISION_TO_TOOL
    expires_in: float | None = None
    on_expiry: Literal["deny", "stop"] = "deny"
    risk: Risk = Risk.SENSITIVE
    action_key: str | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """Data with what goes along: words for the model in its place, changes to the state, notes for the event."""

    data: Any = None
    message: str | None = None
    updates: Sequence[Update] = ()
    metadata: Plain = field(default_factory=dict)


def outcome_of(value: Any, arguments: Plain, context: ToolContext) -> Outcome:
    """What became of a call whose tool returned this."""
    match value:
        case Outcome():
            return value
        case Finish(output):
            return Outcome("success", plain(output), ends=True)
        case Handoff(agent, message):
            return Outcome("success", {"agent": agent}, message or f"Handed over to {agent}.", handoff=agent)
        case Output(data, message, updates, metadata):
            return Outcome("success", plain(data), message, plain(metadata), command=Command(tuple(updates)))
        case Suspend():
            return Outcome("pending", message=value.message, ticket=ticket(value, arguments, context))
        case str():
            return Outcome("success", value)
        case _:
            return Outcome("success", plain(value))


def plain(value: Any) -> Any:
    """The value as data that JSON can say; models, dataclasses, dates and their like become what JSON has for them."""
    try:
        return from_json(to_json(value, inf_nan_mode="null"))
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidOutput(f"a {type(value).__name__} was returned that is not plain data: {error}") from None


def ticket(asked: Suspend, arguments: Plain, context: ToolContext) -> Ticket:
    """The question as it is shown to people; asking again is another question, so that an old answer never fits it."""
    return Ticket(
        id=_ticket_id(context),
        call_id=context.call_id,
        tool=context.tool,
        arguments=arguments,
        action=asked.action,
        message=asked.message,
        risk=asked.risk,
        action_key=asked.action_key,
        resume_mode=asked.resume_mode,
        response_schema=asked.response_schema,
        expires_at=None if asked.expires_in is None else context.now + int(asked.expires_in * 1000),
        on_expiry=asked.on_expiry,
    )


def _ticket_id(context: ToolContext) -> str:
    first = f"suspend_{context.call_id}"
    earlier = context.ticket.id if context.ticket else ""
    if not earlier.startswith(first):
        return first
    return f"{first}.{int(earlier[len(first) + 1 :] or 1) + 1}"


REFUSALS = frozenset({DecisionAction.DENY, DecisionAction.DENY_AND_STOP, DecisionAction.CANCEL})


def decided(decision: Decision) -> Outcome:
    """What became of a call whose result is a person's answer."""
    if decision.action in REFUSALS:
        return failure("denied", decision.reason or "the request was turned down", by=decision.by)
    return Outcome("success", decision.result)

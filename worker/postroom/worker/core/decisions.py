"""What a person's answer does to the call it is about."""

from dataclasses import dataclass, replace
from typing import Any

from postroom.mailbox.contracts import Decision, DecisionAction, ResumeMode
from postroom.worker.core import delegation
from postroom.worker.core.calls import OpenCall, Outcome, failure
from postroom.worker.core.state import Merge, Scope, StateKey
from postroom.worker.core.step import DENIED, STOPS

Plain = dict[str, Any]
ALLOWS = frozenset({DecisionAction.ALLOW_ONCE, DecisionAction.ALLOW_ALWAYS, DecisionAction.ANSWER})

# What was allowed for good on a thread: the action key of the ticket, and who said so in which decision.
# Each is stored in a field of its own, so that one can be taken back while the thread is at work.
GRANTS: StateKey[dict[str, Plain], dict[str, Plain]] = StateKey(
    "runtime.grants", {}, lambda old, new: {**old, **new}, Scope.THREAD, Merge.COMMUTATIVE, persistent=False
)


@dataclass(frozen=True, slots=True)
class Proceed:
    """The call is carried out, with these arguments."""

    arguments: Plain | str


def verdict(call: OpenCall) -> Proceed | Outcome:
    """What follows from the answer; a call nobody had to be asked about just proceeds."""
    decision = call.decision
    if decision is None:
        return Proceed(call.arguments)
    if decision.action not in ALLOWS:
        refused = _refused(decision)
        return replace(refused, command=delegation.recalled(call)) if delegation.child_of(call) else refused
    mode = call.ticket.resume_mode if call.ticket else ResumeMode.REPLAY_TOOL_CALL
    if call.ticket and call.ticket.action == delegation.ACTION:
        return delegation.answered(decision, call.ticket)
    if mode is ResumeMode.USE_DECISION_AS_TOOL_RESULT:
        return Outcome("success", decision.result)
    return Proceed(call.arguments if decision.arguments is None else dict(decision.arguments))


_WORDS = {
    DecisionAction.DENY: "The call was denied",
    DecisionAction.DENY_AND_STOP: "The call was denied and the run stopped",
    DecisionAction.CANCEL: "The call was cancelled",
}


def _refused(decision: Decision) -> Outcome:
    words = _WORDS[decision.action]
    outcome = failure("denied", f"{words}: {decision.reason}" if decision.reason else f"{words}.", **{DENIED: True})
    if decision.action is DecisionAction.DENY_AND_STOP:
        return replace(outcome, metadata={**outcome.metadata, STOPS: True})
    return outcome


def reason_in(action: DecisionAction, words: str) -> str | None:
    """The reason somebody gave, from what the model was told of it."""
    before = f"{_WORDS.get(action, '')}: "
    return words.removeprefix(before) if words.startswith(before) else None


def is_cancel(call: OpenCall) -> bool:
    """Whether the call was taken back rather than refused."""
    return call.decision is not None and call.decision.action is DecisionAction.CANCEL


def allowed(call: OpenCall) -> bool:
    """Whether a person has said yes to this very call."""
    return call.decision is not None and call.decision.action in ALLOWS


def granted(call: OpenCall, now: int) -> dict[str, Plain]:
    """What an allow_always adds to what is allowed for good."""
    decision, ticket = call.decision, call.ticket
    if not decision or not ticket or decision.action is not DecisionAction.ALLOW_ALWAYS or not ticket.action_key:
        return {}
    return {ticket.action_key: {"by": decision.by or "", "decision": decision.id, "at": now, "tool": call.name}}

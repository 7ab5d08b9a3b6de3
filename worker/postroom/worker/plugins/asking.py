"""Asking a person before a call happens: the gate's answer before they have decided, and after."""

from typing import Any

from postroom.mailbox.contracts import DecisionAction, Ticket
from postroom.worker.core.calls import Block, Intercept, OpenCall, SetResult, Suspend
from postroom.worker.plugins.base import HookContext
from postroom.worker.tools.base import Approval
from postroom.worker.tools.results import REFUSALS, decided


def to_be_used(call: OpenCall) -> dict[str, Any] | str:
    """The arguments a call would be carried out with: a person's, when they changed them."""
    edited = call.decision.arguments if call.decision else None
    return call.arguments if edited is None else edited


def asked(approval: Approval, call: OpenCall, now: int, prefix: str, action: str) -> Ticket:
    """The question about a call that is repeated as it is once it was allowed; `prefix` is who asks."""
    return Ticket(
        id=f"{prefix}_{call.id}",
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        action=action,
        message=approval.message,
        risk=approval.risk,
        action_key=approval.action_key,
        expires_at=None if approval.expires_in is None else now + int(approval.expires_in * 1000),
        on_expiry="stop" if approval.on_expiry == "stop" else "deny",
    )


def ask(context: HookContext, approval: Approval, prefix: str, action: str) -> Intercept | None:
    """Holds the call until somebody has decided; a yes lets it pass, a no is its result or the run's end.

    A call that asks something itself has passed the gate before, so an answer to that is a yes as well.
    """
    call, decision = context.call, context.decision
    if call is None:
        return None
    if decision is None:
        return Suspend(asked(approval, call, context.now, prefix, action))
    if decision.action is DecisionAction.DENY_AND_STOP:
        return Block(decision.reason or f"Tool '{call.name}' was turned down")
    return SetResult(decided(decision)) if decision.action in REFUSALS else None

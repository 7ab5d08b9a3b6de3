"""Tool policies: functions that look at each call and let it pass, deny it, have somebody asked, or answer for it."""

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from postroom.worker.core.calls import Block, Intercept, Outcome, SetResult, failure
from postroom.worker.core.command import Command, Effect, Phase
from postroom.worker.core.step import DENIED
from postroom.worker.plugins.asking import ask, to_be_used
from postroom.worker.plugins.base import Gate, Hook, HookContext, Plugin, Registrar
from postroom.worker.tools.base import Approval
from postroom.worker.tools.results import plain

Plain = dict[str, Any]
AUDIT = "policy_audit"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A call as a policy sees it; `arguments` is text when it was not JSON."""

    thread_id: str
    run_id: str
    agent: str
    step: int
    call_id: str
    tool: str
    kind: str
    arguments: Plain | str = field(repr=False)
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Deny:
    """The call does not happen and the model is told why; with `stop` the run ends for it."""

    reason: str
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Replace:
    """The call has this result without being carried out."""

    data: Any = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Audit:
    """The call happens, and a note of it is handed to the auditor once its step is committed."""

    note: str = ""


# None lets the call pass; an Approval has somebody asked.
Verdict = Approval | Deny | Replace | Audit | None
Policy = Callable[[Request], "Verdict | Awaitable[Verdict]"]
Auditor = Callable[[Plain], "Awaitable[None] | None"]


def _logged(note: Plain) -> None:
    _log.info("audit: %s", note)


class ToolPolicy(Plugin):
    """Asks policies about each call. They are pure: the same call may be shown to them again.

    The strongest verdict counts. A policy that fails denies the call.
    """

    id = "tool_policy"

    def __init__(self, *policies: Policy, audit: Auditor = _logged) -> None:
        self._policies = policies
        self._audit = audit

    def register(self, registrar: Registrar) -> None:
        """One gate and one auditing hook for each policy."""
        registrar.effect(AUDIT, self._audit)
        for policy in self._policies:
            registrar.gate(_gate(policy))
            registrar.hook(Phase.BEFORE_TOOL_EXECUTE, _audited(policy))


async def _verdict(policy: Policy, context: HookContext) -> Verdict:
    request = _request(context)
    try:
        found = policy(request)
        return await found if inspect.isawaitable(found) else found
    except Exception:
        _log.warning("the policy for tool %s failed, so the call is denied", request.tool, exc_info=True)
        return Deny("the policy for this tool failed")


def _request(context: HookContext) -> Request:
    call = context.call
    if call is None:
        raise ValueError("policies are asked about calls")
    return Request(
        thread_id=context.thread_id,
        run_id=context.run_id,
        agent=context.agent,
        step=context.step,
        call_id=call.id,
        tool=call.name,
        kind=context.tool.kind if context.tool else "other",
        arguments=to_be_used(call),
        tenant=context.tenant,
    )


def _gate(policy: Policy) -> Gate:
    async def gate(context: HookContext) -> Intercept | None:
        match await _verdict(policy, context):
            case Deny(reason, stop):
                return Block(reason) if stop else SetResult(failure("denied", reason, **{DENIED: True}))
            case Replace(data, message):
                return SetResult(Outcome("success", plain(data), message))
            case Approval() as approval:
                return ask(context, approval, "policy", "approve")
            case _:
                return None

    return gate


def _audited(policy: Policy) -> Hook:
    async def note(context: HookContext) -> Command | None:
        match await _verdict(policy, context):
            case Audit(words):
                request = _request(context)
                return Command(effects=(Effect(AUDIT, _noted(request, words)),))
            case _:
                return None

    return note


def _noted(request: Request, words: str) -> Plain:
    # Arguments may be secret; whoever needs them finds them by the call's id.
    return {
        "thread": request.thread_id, "run": request.run_id, "step": request.step, "call": request.call_id,
        "tool": request.tool, "kind": request.kind, "agent": request.agent, "note": words,
    }  # fmt: skip

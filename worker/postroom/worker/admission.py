"""What becomes of calls as they come in: refused, answered at once, put before somebody, or let through."""

from dataclasses import replace

from postroom.mailbox.contracts import Ticket
from postroom.mailbox.lifecycle import CallStatus
from postroom.worker.core.calls import Block, Intercept, OpenCall, Outcome, SetResult, Suspend, failure
from postroom.worker.core.decisions import GRANTS, allowed
from postroom.worker.core.render import result_event
from postroom.worker.core.step import REJECTED, STATUS_OF, segments
from postroom.worker.model.reply import Reply
from postroom.worker.scene import Scene
from postroom.worker.tools.execute import not_found, refusal

INTERRUPTED = "[Tool execution was interrupted]"


async def admit(scene: Scene, reply: Reply, offered: tuple[str, ...]) -> tuple[OpenCall, ...]:
    """The calls of an answer, in its order, each where it stands before anything has run."""
    found: list[OpenCall] = []
    blocked = False
    for place, asked in enumerate(reply.calls):
        parsed = asked.parsed
        arguments = asked.arguments if parsed is None else parsed
        call = OpenCall(asked.id, asked.name, arguments, place, CallStatus.NEW)
        if blocked:
            found.append(finished(scene, call, failure("interrupted", INTERRUPTED)))
            continue
        found.append(await _admitted(scene, call, offered))
        outcome = found[-1].outcome
        blocked = outcome is not None and REJECTED in outcome.metadata
    return _first_started(scene, tuple(found))


async def _admitted(scene: Scene, call: OpenCall, offered: tuple[str, ...]) -> OpenCall:
    if call.name not in offered:
        return finished(scene, call, not_found(call.name))
    if problem := refusal(scene.plan.tools[call.name], call.arguments):
        return finished(scene, call, problem)
    intercept = await gated(scene, call)
    return intercepted(scene, call, intercept) if intercept else call


async def gated(scene: Scene, call: OpenCall) -> Intercept | None:
    """What the gates say, and then the tool itself, which may want somebody's approval."""
    intercept = await scene.stage.gate(call)
    if intercept:
        return intercept
    wants = scene.plan.tools[call.name].needs_approval
    if wants is None or allowed(call) or not isinstance(call.arguments, dict):
        return None
    approval = wants(call.arguments)
    if approval is None or (approval.action_key and approval.action_key in scene.state[GRANTS]):
        return None
    return Suspend(
        Ticket(
            id=f"approve_{call.id}",
            call_id=call.id,
            tool=call.name,
            arguments=call.arguments,
            message=approval.message or f"May {call.name} be called?",
            risk=approval.risk,
            action_key=approval.action_key,
            expires_at=None if approval.expires_in is None else scene.now + int(approval.expires_in * 1000),
            on_expiry=approval.on_expiry,
        )
    )


def intercepted(scene: Scene, call: OpenCall, intercept: Intercept) -> OpenCall:
    """The call after a gate has spoken."""
    match intercept:
        case Block(reason):
            return finished(scene, call, failure("blocked", reason, **{REJECTED: True}))
        case Suspend(ticket):
            return suspended(scene, call, ticket)
        case SetResult(outcome):
            return finished(scene, call, outcome)


def suspended(scene: Scene, call: OpenCall, ticket: Ticket) -> OpenCall:
    """The call behind a ticket."""
    told = {"type": "tool_call_done", "id": call.id, "outcome": "suspended", "result": ticket.as_dict()}
    scene.pen.tell(told)
    return replace(call, status=CallStatus.SUSPENDED, ticket=ticket, decision=None, outcome=None)


def finished(scene: Scene, call: OpenCall, outcome: Outcome) -> OpenCall:
    """The call with its outcome, told to whoever follows; one that is pending waits behind its ticket."""
    if outcome.status == "pending" and outcome.ticket:
        return suspended(scene, call, outcome.ticket)
    status = STATUS_OF[outcome.status]
    if call.decision:
        scene.pen.tell({"type": "tool_call_resumed", "target_id": call.id, "result": result_event(outcome)})
    else:
        told = {"type": "tool_call_done", "id": call.id, "outcome": status.value, "result": result_event(outcome)}
        scene.pen.tell(told)
    return replace(call, status=status, outcome=outcome)


def _first_started(scene: Scene, calls: tuple[OpenCall, ...]) -> tuple[OpenCall, ...]:
    """The calls with those marked that start right after this commit, so that a crash does not leave that open."""
    ready = tuple(call for call in calls if call.status is CallStatus.NEW)
    if not ready:
        return calls
    starting = {call.id for call in segments(ready, scene.plan.parallel_safe, scene.plan.agent.behaviour.parallel)[0]}
    return tuple(replace(call, status=CallStatus.RUNNING) if call.id in starting else call for call in calls)

"""What becomes of calls as they come in: refused, answered at once, put before somebody, or let through."""

from collections.abc import Iterable
from dataclasses import replace

from postroom.mailbox.contracts import ResumeMode, Ticket
from postroom.mailbox.errands import Errand
from postroom.mailbox.lifecycle import CallStatus
from postroom.worker.core.calls import PENDING, Block, Intercept, OpenCall, Outcome, SetResult, Suspend, failure
from postroom.worker.core.command import Command, Phase
from postroom.worker.core.decisions import GRANTS, allowed
from postroom.worker.core.render import result_event
from postroom.worker.core.step import REJECTED, STATUS_OF, segments
from postroom.worker.model.reply import Reply
from postroom.worker.scene import APPLIED, Scene
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
        if outcome := found[-1].outcome:
            scene.accept(outcome.command)
            blocked = REJECTED in outcome.metadata
    keep_in_mind(scene, found)
    return _first_started(scene, tuple(found))


def keep_in_mind(scene: Scene, calls: Iterable[OpenCall]) -> None:
    """Notes whose changes are in the state, for whoever goes on with the calls that are left."""
    changed = [call.id for call in calls if call.outcome and call.outcome.command]
    if changed:
        scene.accept(Command((APPLIED.update(changed),)))


async def _admitted(scene: Scene, call: OpenCall, offered: tuple[str, ...]) -> OpenCall:
    if call.name not in offered:
        return finished(scene, call, not_found(call.name))
    if problem := refusal(scene.plan.tools[call.name], call.arguments):
        return finished(scene, call, problem)
    intercept = await gated(scene, call)
    return await intercepted(scene, call, intercept) if intercept else call


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


async def intercepted(scene: Scene, call: OpenCall, intercept: Intercept) -> OpenCall:
    """The call after a gate has spoken; one that has its outcome now was completed like any other."""
    match intercept:
        case Suspend(ticket):
            return suspended(scene, call, ticket)
        case Block(reason):
            outcome = failure("blocked", reason, **{REJECTED: True})
        case SetResult(outcome):
            pass
    if outcome.status != PENDING:
        wanted = await scene.stage.collect(Phase.AFTER_TOOL_EXECUTE, call=call, outcome=outcome)
        outcome = replace(outcome, command=outcome.command + wanted) if wanted else outcome
    return finished(scene, call, outcome)


def suspended(scene: Scene, call: OpenCall, ticket: Ticket, errands: tuple[Errand, ...] = ()) -> OpenCall:
    """The call behind a ticket."""
    told = {"type": "tool_call_done", "id": call.id, "outcome": "suspended", "result": ticket.as_dict()}
    scene.pen.tell(told)
    return replace(call, status=CallStatus.SUSPENDED, ticket=ticket, decision=None, outcome=None, errands=errands)


def finished(scene: Scene, call: OpenCall, outcome: Outcome) -> OpenCall:
    """The call with its outcome, told to whoever follows; one that is pending waits behind its ticket."""
    if outcome.status == PENDING:
        return suspended(scene, call, outcome.ticket or _question(call, outcome), outcome.command.errands)
    status = STATUS_OF[outcome.status]
    if call.decision:
        scene.pen.tell({"type": "tool_call_resumed", "target_id": call.id, "result": result_event(outcome)})
    else:
        told = {"type": "tool_call_done", "id": call.id, "outcome": status.value, "result": result_event(outcome)}
        scene.pen.tell(told)
    return replace(call, status=status, outcome=outcome)


def _question(call: OpenCall, outcome: Outcome) -> Ticket:
    """What somebody is asked when whoever left the call pending did not say; without it nobody could ever answer."""
    return Ticket(
        id=f"suspend_{call.id}",
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        action="ask",
        message=outcome.message or f"{call.name} waits for an answer",
        resume_mode=ResumeMode.PASS_DECISION_TO_TOOL,
    )


def _first_started(scene: Scene, calls: tuple[OpenCall, ...]) -> tuple[OpenCall, ...]:
    """The calls with those marked that start right after this commit, so that a crash does not leave that open."""
    ready = tuple(call for call in calls if call.status is CallStatus.NEW)
    if not ready:
        return calls
    starting = {call.id for call in segments(ready, scene.plan.parallel_safe, scene.plan.agent.behaviour.parallel)[0]}
    return tuple(replace(call, status=CallStatus.RUNNING) if call.id in starting else call for call in calls)

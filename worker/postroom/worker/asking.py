"""The turn that asks the model: hooks, request, answer, and what the answer leads to."""

import time
from dataclasses import replace
from typing import Any

from postroom.dispatcher.reports import task_message
from postroom.mailbox.contracts import Termination
from postroom.mailbox.lifecycle import CALL_DONE, TerminationKind, WaitingReason
from postroom.mailbox.runs import spent
from postroom.worker.admission import admit
from postroom.worker.core.command import Command, Phase
from postroom.worker.core.delegation import policies, reason
from postroom.worker.core.errors import OutputInvalid
from postroom.worker.core.output import Refused, checked
from postroom.worker.core.step import WaitForDecisions, next_move
from postroom.worker.core.stop import RUN_STATS, ConsecutiveErrors, Verdict, counted, failed, first_stop, resumed
from postroom.worker.core.tasks import ORPHANED, TASKS, heard, pending
from postroom.worker.inference import infer
from postroom.worker.loop import Plain, Turn, Wait
from postroom.worker.model.errors import ContextOverflow
from postroom.worker.model.reply import Reply
from postroom.worker.requesting import Asked, compact_if_due, compacted_now, request_for
from postroom.worker.scene import ACTIVE, REPAIRS, Scene, now_ms
from postroom.worker.stage import settled
from postroom.worker.working import settle

NATURAL = Termination(kind=TerminationKind.NATURAL_END)


async def ask(scene: Scene) -> Turn:
    """One step up to the model's answer, and to its end if no tool has to run."""
    await _begin(scene)
    if stop := scene.stage.stop:
        return await scene.finish(stop, (), None)
    asked = await request_for(scene)
    if stop := scene.stage.stop:
        return await scene.finish(stop, (), None)
    reply = await _heard(scene, asked)
    await scene.stage.gather(Phase.AFTER_INFERENCE, reply=reply, messages=asked.seen, tools=asked.names)
    _count(scene, reply)
    if stop := scene.stage.stop or _stop(scene, reply):
        # The words of the step that is stopped are kept; its calls are not carried out and so not stored.
        words = replace(reply, calls=())
        return await scene.finish(stop, () if words.empty else (words.as_message(),), {"response": reply.text})
    return await (_call(scene, asked, reply) if reply.calls else _conclude(scene, asked, reply))


async def _heard(scene: Scene, asked: Asked) -> Reply:
    """The answer as it is stored: filtered, and told when no filter can take it back any more."""
    began = time.monotonic()
    reply = await _answer(scene, asked)
    scene.usage = reply.usage
    for change in scene.plan.reply_filters:
        reply = await settled(change(reply, scene.stage.context(Phase.AFTER_INFERENCE, reply=reply)))
    if scene.plan.reply_filters and reply.text:
        scene.pen.tell({"type": "text_delta", "delta": reply.text})
    took = int((time.monotonic() - began) * 1000)
    told: Plain = {"type": "inference_complete", "model": scene.plan.model.name, "duration_ms": took}
    scene.pen.tell({**told, "usage": spent(scene.usage)})
    return reply


async def _begin(scene: Scene) -> None:
    """Opens the step, the run if it is new, and the agent if another one had the run before."""
    standing, stage, agent = scene.standing, scene.stage, scene.plan.agent.id
    if standing.step_open:
        scene.pen.tell({"type": "stream_reset", "reason": "taken over"})
    else:
        scene.pen.tell({"type": "step_start", "message_id": f"{standing.run_id}.{standing.step}"})
    scene.summary = await scene.compaction.outcome(wait=False)
    before = stage.state[ACTIVE]
    if before != agent:
        context = stage.context(Phase.RUN_START)
        stage.accept(*(command for plugin in scene.plan.plugins if (command := plugin.on_activate(context))))
        stage.accept(Command((ACTIVE.update(agent),)))
    if scene.resumed:
        stage.accept(Command((RUN_STATS.update(resumed(stage.state[RUN_STATS], scene.now)),)))
        stage.stop = stage.stop or _gave_up(scene)
    if scene.plan.input_filters and standing.arrived:
        scene.arrived = tuple([await _filtered(scene, message) for message in standing.arrived])
    await _hear_of_tasks(scene)
    if not before:
        await stage.gather(Phase.RUN_START, messages=standing.messages)
    if not stage.stop:
        await stage.gather(Phase.STEP_START, messages=standing.messages)


async def _hear_of_tasks(scene: Scene) -> None:
    """Takes note of tasks that have ended, and when a worker takes the run up, of those whose runs are gone."""
    known = scene.state[TASKS]
    news = heard(known, scene.standing.arrived, scene.now)
    scene.closed = tuple(news)
    if scene.resumed:
        asked = [task["task_id"] for task in pending(known, scene.standing.thread_id) if task["task_id"] not in news]
        for task_id in await scene.pen.dispatcher.missing_runs(scene.standing.thread_id, asked) if asked else ():
            news[task_id] = {"status": "failed", "completed_at_ms": scene.now, "error": ORPHANED}
            lost = task_message(task_id, "failed", {"error": ORPHANED}).as_dict()
            scene.arrived = (*(scene.standing.arrived if scene.arrived is None else scene.arrived), lost)
    if news:
        scene.accept(Command((TASKS.update(news),)))


def _gave_up(scene: Scene) -> Termination | None:
    """Whether the attempts that failed before this one are enough, for an agent that says so."""
    stats = scene.state[RUN_STATS]
    for _ in range(scene.standing.attempt):
        stats = failed(stats, scene.now)
    asked = [each for each in scene.plan.stops if isinstance(each, ConsecutiveErrors)]
    return _stopped(first_stop(asked, stats, None, scene.now))


async def _filtered(scene: Scene, message: Plain) -> Plain:
    for change in scene.plan.input_filters:
        if message["role"] == "user":
            message = await settled(change(message, scene.stage.context(Phase.RUN_START)))
    return message


async def _answer(scene: Scene, asked: Asked) -> Reply:
    """The model's answer. If the request was too long after all, it is made shorter and asked once more."""
    behaviour = scene.plan.agent.behaviour
    # What a filter may take back must not have been shown.
    hold = bool(scene.plan.reply_filters)
    scene.pen.reach("before_model")
    try:
        reply = await infer(scene.plan.model, asked.request, scene.pen, behaviour.continuations, behaviour.nudges, hold)
    except ContextOverflow:
        scene.pen.tell({"type": "stream_reset", "reason": "the request was too long"})
        shorter = await compacted_now(scene, asked)
        reply = await infer(
            scene.plan.model, shorter.request, scene.pen, behaviour.continuations, behaviour.nudges, hold
        )
    scene.pen.reach("after_model")
    await compact_if_due(scene, asked)
    return reply


def _count(scene: Scene, reply: Reply) -> None:
    stats = counted(scene.state[RUN_STATS], reply, now_ms())
    scene.stage.accept(Command((RUN_STATS.update(stats),)))


def _stop(scene: Scene, reply: Reply) -> Termination | None:
    stops = (*scene.plan.stops, *policies(scene.standing.request))
    return _stopped(first_stop(stops, scene.state[RUN_STATS], reply, now_ms()))


def _stopped(verdict: Verdict) -> Termination | None:
    return Termination(kind=TerminationKind.STOPPED, code=verdict[0], message=verdict[1]) if verdict else None


async def _call(scene: Scene, asked: Asked, reply: Reply) -> Turn:
    """The answer has calls: they are stored before any of them is carried out."""
    calls = await admit(scene, reply, asked.names)
    message = reply.as_message()
    if all(call.status in CALL_DONE for call in calls):
        return await settle(scene, calls, (message,), reply)
    match next_move(calls):
        case WaitForDecisions(tickets):
            await scene.close_step((*asked.seen, message))
            scene.pen.reach("before_suspend")
            waits = Wait(reason(tickets), tickets=tickets)
            return scene.turn(messages=(message,), calls=calls, then=waits)
        case _:
            return scene.turn(messages=(message,), calls=calls)


async def _conclude(scene: Scene, asked: Asked, reply: Reply) -> Turn:
    """The answer is words: the run's last ones, unless they have the wrong shape."""
    message = reply.as_message()
    result: dict[str, Any] = {"response": reply.text}
    if scene.plan.output:
        found = checked(reply.text, scene.plan.output)
        if isinstance(found, Refused):
            return await _repair(scene, asked, message, found)
        result["output"] = found.value
    if await scene.pen.mail_came():
        # There is more to read, so this is not the end: it would only have to be taken back.
        await scene.close_step((*asked.seen, message))
        return scene.turn(messages=(message,))
    if pending(scene.state[TASKS], scene.standing.thread_id):
        # The words are said; what is still at work will have more to say.
        await scene.close_step((*asked.seen, message))
        return scene.turn(messages=(message,), then=Wait(WaitingReason.TASKS))
    return await scene.finish(NATURAL, (message,), result)


async def _repair(scene: Scene, asked: Asked, message: Plain, wrong: Refused) -> Turn:
    """Sends the answer back, as often as the agent allows."""
    tried = scene.state[REPAIRS]
    if tried >= scene.plan.agent.behaviour.repairs:
        problems = "; ".join(wrong.problems)
        raise OutputInvalid(f"run {scene.standing.run_id}: the final answer has the wrong shape: {problems}")
    scene.stage.accept(Command((REPAIRS.update(tried + 1),)))
    note: Plain = {"role": "user", "content": [{"type": "text", "text": wrong.repair}], "visibility": "internal"}
    await scene.close_step((*asked.seen, message, note))
    return scene.turn(messages=(message, note))

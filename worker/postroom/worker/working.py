"""The turn that carries calls out, side by side where that is safe, each journaled as it ends."""

import asyncio
from dataclasses import replace

from postroom.mailbox.contracts import Termination, Usage
from postroom.mailbox.lifecycle import CALL_DONE, CallStatus, TerminationKind
from postroom.worker.admission import INTERRUPTED, finished, gated, intercepted, keep_in_mind
from postroom.worker.core.calls import OpenCall, Outcome, failure
from postroom.worker.core.command import Command, Phase
from postroom.worker.core.decisions import GRANTS, granted, is_cancel, verdict
from postroom.worker.core.delegation import child_of, counted, reason, spent
from postroom.worker.core.errors import MergeConflict
from postroom.worker.core.render import limited, result_message
from postroom.worker.core.state import State, merged
from postroom.worker.core.step import DENIED, ending, handoff, segments
from postroom.worker.core.stop import RUN_STATS
from postroom.worker.core.streaks import TOOL_STREAKS, GiveUp, GoOn, after_round
from postroom.worker.loop import Continue, Plain, Turn, Wait
from postroom.worker.model.base import CallDropped
from postroom.worker.model.reply import Reply
from postroom.worker.notes import by_id, has_moved
from postroom.worker.scene import APPLIED, Scene
from postroom.worker.tools.base import ToolContext
from postroom.worker.tools.execute import execute

NOTHING_SPENT = Usage()
OUTCOME_UNKNOWN = "The worker died while this call was being carried out. Whether it took effect is not known."


async def work(scene: Scene, ready: tuple[OpenCall, ...]) -> Turn:
    """Carries out what can be, and ends the step when every call has its result."""
    shift = Shift(scene)
    await shift.run(ready)
    calls = shift.all()
    if all(call.status in CALL_DONE for call in calls):
        scene.pen.reach("tools_done")
        return await settle(scene, calls, (), None)
    tickets = tuple(call.ticket for call in calls if call.ticket and call.status is CallStatus.SUSPENDED)
    keep_in_mind(scene, calls)
    await scene.close_step(scene.standing.messages)
    scene.pen.reach("before_suspend")
    return scene.turn(calls=calls, folds=False, then=Wait(reason(tickets), tickets=tickets))


class Shift:
    """The calls of a step while they are carried out."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.calls = by_id(scene.standing.calls)
        self.unwritten: set[str] = set()
        applied: list[str] = scene.state[APPLIED]
        self.applied = frozenset(applied)
        self.starting = asyncio.Lock()
        for call in self.all():
            if call.outcome and call.id in self.applied:
                scene.accept(Command(stop=call.outcome.command.stop))

    def all(self) -> tuple[OpenCall, ...]:
        """Every call, in the order of the answer."""
        return tuple(sorted(self.calls.values(), key=lambda call: call.index))

    async def run(self, ready: tuple[OpenCall, ...]) -> None:
        """Group after group; a tool that suspends ends the shift when calls run one after the other."""
        scene = self.scene
        if scene.resumed:
            ready = tuple(call for call in map(self._taken_over, ready) if call.status not in CALL_DONE)
        groups = segments(self._unsettled(ready), scene.plan.parallel_safe, scene.plan.agent.behaviour.parallel)
        for place, group in enumerate(groups):
            opened = [await self._opened(call) for call in group if call.status not in CALL_DONE]
            runnable = [call for call in opened if call.status not in (*CALL_DONE, CallStatus.SUSPENDED)]
            await self._journal()
            if runnable:
                await self._side_by_side(runnable)
            self._merge(group)
            if self._interrupted(runnable):
                for call in (call for later in groups[place + 1 :] for call in later if call.status not in CALL_DONE):
                    self._put(finished(scene, call, failure("interrupted", INTERRUPTED)))
                return

    def _unsettled(self, ready: tuple[OpenCall, ...]) -> tuple[OpenCall, ...]:
        """The calls to carry out and those that finished under a worker that died before their changes were kept."""
        wanted = {call.id for call in ready}
        return tuple(
            call
            for call in self.all()
            if call.id in wanted or (call.status in CALL_DONE and call.id not in self.applied)
        )

    def _interrupted(self, ran: list[OpenCall]) -> bool:
        one_by_one = self.scene.plan.agent.behaviour.parallel <= 1
        return one_by_one and any(
            self.calls[call.id].status is CallStatus.SUSPENDED and not call.decision for call in ran
        )

    def _taken_over(self, call: OpenCall) -> OpenCall:
        """A call that was under way when its worker died: repeated if that is safe, otherwise reported."""
        if call.status not in (CallStatus.RUNNING, CallStatus.RESUMING):
            return call
        tool = self.scene.plan.tools.get(call.name)
        if tool is None or tool.idempotent:
            return call
        return self._put(finished(self.scene, call, failure("outcome_unknown", OUTCOME_UNKNOWN, interrupted=True)))

    async def _opened(self, call: OpenCall) -> OpenCall:
        """The call as it is about to start: decided, let through by the gates, and marked as started."""
        scene = self.scene
        answer = verdict(call)
        if isinstance(answer, Outcome):
            done = finished(scene, call, answer)
            return self._put(replace(done, status=CallStatus.CANCELLED) if is_cancel(call) else done)
        call = replace(call, arguments=answer.arguments)
        if call.name not in scene.plan.tools:
            return self._put(finished(scene, call, failure("not_found", f"tool {call.name!r} not found")))
        # What was let through may have been forbidden since, by a rule or by what the calls before have changed.
        if intercept := await gated(scene, call):
            return self._put(await intercepted(scene, call, intercept))
        if grants := granted(call, scene.now):
            scene.accept(Command((GRANTS.update(grants),)))
        started = CallStatus.RESUMING if call.status is CallStatus.SUSPENDED else CallStatus.RUNNING
        return self._put(call if call.status is CallStatus.RESUMING else replace(call, status=started))

    def _put(self, call: OpenCall) -> OpenCall:
        known = self.scene.pen.calls.get(call.id)
        if known is None or has_moved(call, known):
            self.unwritten.add(call.id)
        self.calls[call.id] = call
        return call

    async def _journal(self) -> None:
        """Writes what the journal does not know yet."""
        if self.unwritten:
            changed = tuple(self.calls[call_id] for call_id in sorted(self.unwritten))
            self.unwritten.clear()
            await self.scene.pen.jot(changed)
            self.scene.pen.reach("call_journaled")

    async def _side_by_side(self, group: list[OpenCall]) -> None:
        limit = asyncio.Semaphore(self.scene.plan.agent.behaviour.parallel)
        left = len(group)
        state = self.scene.state

        async def carry_out(call: OpenCall) -> None:
            nonlocal left
            async with limit:
                outcome = await self._carried_out(call, state)
            left -= 1
            self._put(finished(self.scene, call, outcome))
            if left:
                await self._journal()

        if len(group) == 1:
            await carry_out(group[0])
            return
        async with asyncio.TaskGroup() as tasks:
            for call in group:
                tasks.create_task(carry_out(call))

    async def _carried_out(self, call: OpenCall, state: State) -> Outcome:
        scene, stage, standing = self.scene, self.scene.stage, self.scene.standing
        tool = scene.plan.tools[call.name]
        async with self.starting:  # in the order of the answer, however long a hook takes
            await stage.submit(Phase.BEFORE_TOOL_EXECUTE, call=call)
            seen = stage.state
        scene.pen.reach("tool_started")

        def tell(words: str) -> None:
            scene.pen.tell({"type": "tool_call_stream_delta", "id": call.id, "name": call.name, "delta": words})

        context = ToolContext(
            standing.thread_id,
            standing.run_id,
            scene.plan.agent.id,
            standing.step,
            call.id,
            call.name,
            standing.attempt + 1,
            standing.request.get("deadline"),
            standing.request.get("tenant"),
            state,
            call.decision,
            call.ticket,
            tell,
            standing.request,
            tuple((each.id, each.name) for each in self.all()),
            scene.pen.dispatcher,
        )
        outcome = await execute(tool, call.arguments, context)
        scene.pen.reach("tool_finished")
        outcome = limited(outcome, tool.output_limit or scene.plan.agent.behaviour.output_limit)
        wanted = await stage.collect(Phase.AFTER_TOOL_EXECUTE, call=call, outcome=outcome, state=seen)
        if grants := granted(call, scene.now):
            # Journaled with the call, so that what was allowed for good outlives this worker.
            wanted += Command((GRANTS.update(grants),))
        return replace(outcome, command=outcome.command + wanted) if wanted else outcome

    def _merge(self, group: tuple[OpenCall, ...]) -> None:
        """Applies what calls that ran side by side changed, in the order of the answer; a clash is the later one's.

        Its status stays: the tool did its work, and the journal may say so already.
        """
        scene = self.scene
        taken: list[tuple[object, ...]] = []
        for call in sorted((self.calls[each.id] for each in group), key=lambda each: each.index):
            if not call.outcome or call.status not in CALL_DONE:
                continue
            updates = call.outcome.command.updates
            try:
                merged(scene.state, [*taken, updates])  # type: ignore[list-item]
            except MergeConflict as error:
                self._put(replace(call, outcome=failure(error.code, error.message)))
                continue
            taken.append(updates)
            scene.accept(call.outcome.command)


async def settle(scene: Scene, calls: tuple[OpenCall, ...], before: tuple[Plain, ...], reply: Reply | None) -> Turn:
    """Every call has its result: they are stored in the order of the answer, and the step is over."""
    results = tuple(result_message(call.id, call.outcome) for call in calls if call.outcome)
    outputs = {call.id: call.outcome.full for call in calls if call.outcome and call.outcome.full}
    follows = _patience(scene, calls)
    used = spent(calls)
    if used != NOTHING_SPENT:
        scene.usage = scene.usage + used if scene.usage else used
        scene.accept(Command((RUN_STATS.update(counted(scene.state[RUN_STATS], used)),)))
    if scene.state[APPLIED]:
        scene.accept(Command((APPLIED.update([]),)))
    closed = tuple(filter(None, map(child_of, calls)))
    messages = (*before, *results, *_notes(reply, follows))
    end = ending(calls)
    if not end and (stop := scene.stage.stop or _stopped(follows)):
        end = stop, None
    if end:
        termination, result = end
        return await scene.finish(termination, messages, result, outputs=outputs, closed=closed)
    await scene.close_step((*scene.standing.messages, *messages))
    agent = handoff(calls)
    if agent and agent != scene.plan.agent.id:
        scene.leave()
    return scene.turn(messages=messages, then=Continue(), agent=agent, outputs=outputs, closed=closed)


def _patience(scene: Scene, calls: tuple[OpenCall, ...]) -> GoOn | GiveUp:
    """Whether the model may go on trying tools that fail; a person's no is not a failure of the tool."""
    known = scene.state[TOOL_STREAKS]
    outcomes = [(call.name, call.outcome) for call in calls if call.outcome and DENIED not in call.outcome.metadata]
    streaks, follows = after_round(known, outcomes, scene.plan.agent.behaviour.failures)
    if streaks != known:
        scene.accept(Command((TOOL_STREAKS.update(streaks),)))
    return follows


def _stopped(follows: GoOn | GiveUp) -> Termination | None:
    if isinstance(follows, GoOn):
        return None
    return Termination(kind=TerminationKind.STOPPED, code=follows.code, message=follows.reason)


def _notes(reply: Reply | None, follows: GoOn | GiveUp) -> tuple[Plain, ...]:
    """What the model is told besides the results."""
    words = [f"Your call of {each.name} was lost: {each.reason}. Ask again if you need it." for each in _dropped(reply)]
    if isinstance(follows, GoOn) and follows.note:
        words.append(follows.note)
    return tuple(
        {"role": "user", "content": [{"type": "text", "text": each}], "visibility": "internal"} for each in words
    )


def _dropped(reply: Reply | None) -> tuple[CallDropped, ...]:
    return reply.dropped if reply else ()

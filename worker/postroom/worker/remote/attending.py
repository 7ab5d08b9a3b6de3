"""A run that a remote agent serves, turn by turn: say what will be asked, ask, see what becomes of it.

Each of them is a commit. Whoever takes the run up in between knows whether the agent may have been asked already, and
if so as which task; the agent is never asked twice when it can be told that it was.
"""

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from postroom.mailbox.contracts import ResumeMode, Termination, Ticket
from postroom.mailbox.lifecycle import CallStatus, TerminationKind, WaitingReason
from postroom.worker.agent import Agent
from postroom.worker.core import capabilities
from postroom.worker.core.calls import OpenCall, Outcome
from postroom.worker.core.decisions import verdict
from postroom.worker.core.errors import NothingToSay, RemoteRefused, RemoteUnavailable
from postroom.worker.core.render import result_event, result_message
from postroom.worker.core.step import ending
from postroom.worker.loop import Continue, Finish, Pen, Plain, Standing, Turn, Wait
from postroom.worker.model.errors import ModelError, Permanent
from postroom.worker.remote.peer import Peer
from postroom.worker.remote.saying import Mark, kept, message, remembered
from postroom.worker.remote.tasks import CANCELED, COMPLETED, ENDS, WAITS, Artifact, Said, Task
from postroom.worker.scene import now_ms

log = logging.getLogger(__name__)

# The call that stands for what an agent wants to be shown before it goes on.
AUTHENTICATE: Final = "authenticate"
GRANTED: Final = "It is granted."
# However late it is, whoever takes a run up has so long to see what has become of its task.
LAST_LOOK_S: Final = 10.0
# How long a run that ends waits for the agent to hear of it.
ABORT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class RemotePlan:
    """What it takes to serve a run as a remote agent."""

    agent: Agent
    peer: Peer
    version: str = ""


@dataclass(frozen=True, slots=True)
class Engaged:
    """Says that the step was begun by this very worker."""

    plan: RemotePlan

    def close(self) -> None:
        """Nothing is kept."""


def fingerprint(agent: Agent) -> str:
    """A short name for exactly this definition."""
    data = [agent.id, agent.backend.as_dict() if agent.backend else None]
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]


async def attend(standing: Standing, pen: Pen, plan: RemotePlan) -> Turn:
    """One turn."""
    visit = Visit(standing, pen, plan)
    if standing.calls:
        return await visit.go_on()
    if not standing.step_open:
        return visit.begin()
    if not isinstance(standing.memory, Engaged):
        pen.tell({"type": "stream_reset", "reason": "taken over"})
    async with _named():
        if visit.mark and visit.mark.run == standing.run_id and visit.mark.step == standing.step:
            return await visit.watch(visit.mark)
        return await visit.ask()


async def abort(standing: Standing, pen: Pen, plan: RemotePlan) -> Mapping[str, Any]:
    """Asks the agent to end what it does for a run; the thread's state as it is then."""
    visit = Visit(standing, pen, plan)
    return await visit.abort()


class Visit:
    """One turn in the making."""

    def __init__(self, standing: Standing, pen: Pen, plan: RemotePlan) -> None:
        self.standing, self.pen, self.plan, self.peer = standing, pen, plan, plan.peer
        self.mark = remembered(standing, plan.peer.config.url)
        self.told = ""
        self.shown = ("", "")
        self.began = time.monotonic()

    def begin(self) -> Turn:
        """What has arrived is stored, and with it that the agent is about to be asked."""
        capabilities.require(capabilities.REMOTE, self.standing.request)
        self.pen.tell({"type": "step_start", "message_id": f"{self.standing.run_id}.{self.standing.step}"})
        return self._turn(then=Continue(), remote=True)

    async def ask(self) -> Turn:
        """Sends what the agent has not heard yet. What it takes on is committed before anybody looks at it."""
        words = message(self.standing, self.mark)
        if not words["parts"]:
            raise NothingToSay(f"run {self.standing.run_id} has nothing to say to {self.plan.agent.id}")
        since = now_ms()
        self.pen.reach("before_model")
        try:
            async with asyncio.timeout(self.peer.config.timeout_s):
                answer = await self._sent(words)
        except TimeoutError:
            return self._late(None, await self.abort())
        self.pen.reach("after_model")
        if isinstance(answer, Said):
            return self._answered(answer)
        mark = Mark(*self._place, answer.id, answer.context, answer.state, since)
        if answer.settled:
            return self._settled(answer, mark)
        self._stand(answer)
        return self._turn(then=Continue(), folds=False, thread_state=kept(self.standing.agent, mark))

    async def _sent(self, words: Plain) -> Task | Said:
        again = not isinstance(self.standing.memory, Engaged)
        try:
            return await self.peer.send(words, again)
        except Permanent:
            # What an earlier run was asked may be forgotten by now; these words are then new ones.
            if "taskId" not in words or (self.mark and self.mark.run == self.standing.run_id):
                raise
            fresh = {name: value for name, value in words.items() if name != "taskId"}
            return await self.peer.send(fresh, again=True)

    async def watch(self, mark: Mark) -> Turn:
        """Looks what becomes of a task, and tells it as it comes."""
        task = Task(mark.task, mark.context, mark.state)
        left = mark.since / 1000 + self.peer.config.timeout_s - time.time()
        try:
            async with asyncio.timeout(left if left > 0 else LAST_LOOK_S), aclosing(self.peer.follow(task)) as seen:
                async for task in seen:
                    self._stand(task)
                    self._say(task.words)
        except TimeoutError:
            return self._late(task, await self.abort())
        return self._settled(task, mark.after(task))

    async def go_on(self) -> Turn:
        """Somebody has decided about what the agent wanted: it hears of that in the next step."""
        (call,) = self.standing.calls
        if call.decision is None:
            tickets = (call.ticket,) if call.ticket else ()
            return self._turn(then=Wait(WaitingReason.APPROVAL, tickets=tickets), calls=(call,), folds=False)
        found = verdict(call)
        outcome = found if isinstance(found, Outcome) else Outcome("success")
        if not outcome.failed and outcome.data is None:
            outcome = replace(outcome, message=GRANTED)
        self.pen.tell({"type": "tool_call_resumed", "target_id": call.id, "result": result_event(outcome)})
        said = (result_message(call.id, outcome),)
        end = ending((replace(call, outcome=outcome),))
        if end is None:
            return self._turn(then=Continue(), messages=said, folds=False)
        return self._turn(then=Finish(end[0]), messages=said, folds=False, thread_state=await self.abort())

    async def abort(self) -> Mapping[str, Any]:
        """Asks the agent to end its task, for a while and in vain if need be."""
        mark = self.mark if self.mark and self.mark.run == self.standing.run_id else None
        try:
            async with asyncio.timeout(ABORT_S):
                if self.pen.step_open and (mark is None or mark.step != self.standing.step):
                    mark = await self._unmarked() or mark
                if mark is None or mark.state in ENDS:
                    return {}
                await self.peer.cancel(mark.task)
        except (ModelError, TimeoutError) as error:
            words = str(error) or "no answer in time"
            log.warning("run %s: its remote task could not be ended: %s", self.standing.run_id, words)
        return kept(self.standing.agent, replace(mark, state=CANCELED)) if mark else {}

    async def _unmarked(self) -> Mark | None:
        """What was asked by a step that was stopped before it could say so."""
        task = await self.peer.find(message(self.standing, self.mark))
        return Mark(*self._place, task.id, task.context, task.state, 0) if task else None

    @property
    def _place(self) -> tuple[str, str, int]:
        return self.peer.config.url, self.standing.run_id, self.standing.step

    # -- what followers see ------------------------------------------------------------------------------------------

    def _stand(self, task: Task) -> None:
        """Tells how the task stands, if that is new."""
        if self.shown != (task.state, task.note) and not task.settled:
            self.shown = task.state, task.note
            about = {"message_id": f"{self.standing.run_id}.{self.standing.step}", "activity_type": "remote_task"}
            content = {"task": task.id, "state": task.state, "text": task.note}
            self.pen.tell({"type": "activity_snapshot", **about, "content": content})

    def _say(self, words: str) -> None:
        """Tells the words as they grow."""
        if not words.startswith(self.told):
            self.pen.tell({"type": "stream_reset", "reason": "the agent took words back"})
            self.told = ""
        if more := words[len(self.told) :]:
            self.pen.tell({"type": "text_delta", "delta": more})
        self.told = words

    def _complete(self) -> None:
        took = int((time.monotonic() - self.began) * 1000)
        told: Plain = {"type": "inference_complete", "model": f"a2a:{self.plan.agent.id}", "duration_ms": took}
        self.pen.tell({**told, "usage": {}})

    # -- what is committed -------------------------------------------------------------------------------------------

    def _answered(self, answer: Said) -> Turn:
        files = [Artifact("", "", answer.parts)] if any("text" not in part for part in answer.parts) else []
        self._say(answer.words)
        self._complete()
        self.pen.tell({"type": "step_end"})
        said, result = _outcome(answer.words, files)
        return self._turn(then=Finish(result=result), messages=said, folds=False)

    def _settled(self, task: Task, mark: Mark) -> Turn:
        """The agent is done, or somebody else has to act: the step is over."""
        self._say(task.words)
        said, result = _outcome(task.words, task.artifacts)
        state = kept(self.standing.agent, mark)
        if WAITS.get(task.state) is WaitingReason.APPROVAL:
            return self._wants_proof(task, said, state)
        self._complete()
        self.pen.tell({"type": "step_end"})
        if reason := WAITS.get(task.state):
            self.pen.reach("before_suspend")
            then: Wait | Finish = Wait(reason, message=task.note)
        else:
            then = Finish(task.termination, result if task.state == COMPLETED else None)
        return self._turn(then=then, messages=said, folds=False, thread_state=state)

    def _wants_proof(self, task: Task, said: tuple[Plain, ...], state: Plain) -> Turn:
        """The agent wants to be shown that it may go on: a ticket, like any that a call waits behind."""
        call_id = f"{self.standing.run_id}.{self.standing.step}.auth"
        arguments = {"task": task.id}
        ticket = Ticket(
            id=f"auth_{call_id}",
            call_id=call_id,
            tool=AUTHENTICATE,
            arguments=arguments,
            action=AUTHENTICATE,
            message=task.note or f"{self.plan.agent.id} wants to be authorised",
            resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
        )
        about = {"id": call_id, "name": AUTHENTICATE}
        self.pen.tell({"type": "tool_call_start", **about})
        self.pen.tell({"type": "tool_call_ready", **about, "arguments": arguments})
        self._complete()
        told = {"type": "tool_call_done", "id": call_id, "outcome": "suspended", "result": ticket.as_dict()}
        self.pen.tell(told)
        self.pen.tell({"type": "step_end"})
        words = said[0] if said else {"role": "assistant"}
        asked: Plain = {**words, "tool_calls": [{**about, "arguments": arguments}]}
        call = OpenCall(call_id, AUTHENTICATE, arguments, 0, CallStatus.SUSPENDED, ticket)
        self.pen.reach("before_suspend")
        waits = Wait(WaitingReason.APPROVAL, tickets=(ticket,), message=ticket.message)
        return self._turn(then=waits, messages=(asked,), calls=(call,), folds=False, thread_state=state)

    def _late(self, task: Task | None, state: Mapping[str, Any]) -> Turn:
        """Out of patience; the words there are stay."""
        said, _ = _outcome(task.words if task else "", task.artifacts if task else ())
        self.pen.tell({"type": "step_end"})
        words = f"{self.plan.agent.id} was not done after {self.peer.config.timeout_s:g} s"
        end = Termination(kind=TerminationKind.STOPPED, code="timeout", message=words)
        return self._turn(then=Finish(end), messages=said, folds=False, thread_state=state)

    def _turn(self, **about: Any) -> Turn:
        config = "" if self.standing.config == self.plan.version else self.plan.version
        return Turn(config=config, memory=Engaged(self.plan), **about)


def _outcome(words: str, artifacts: Any) -> tuple[tuple[Plain, ...], Plain]:
    """The message of the agent and the result of the run; what it made is part of both."""
    made = [each.as_dict() for each in artifacts]
    said: Plain = {"role": "assistant", "content": [{"type": "text", "text": words}] if words else []}
    if made:
        said["metadata"] = {"artifacts": made}
    result = {"response": words, "output": {"artifacts": made} if made else None}
    return ((said,) if words or made else ()), result


@asynccontextmanager
async def _named() -> AsyncIterator[None]:
    """What goes wrong between here and the agent, as errors of a run."""
    try:
        yield
    except ModelError as error:
        raise (RemoteUnavailable if error.retryable else RemoteRefused)(error.message) from None

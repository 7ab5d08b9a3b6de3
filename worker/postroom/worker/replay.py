"""Replay: a finished run goes through the loop once more, with what its model and its tools said then.

It happens on a thread of its own that is deleted afterwards; the run itself is only read. No model is asked, no tool is
carried out and no effect is sent off. Hooks and gates are the app's own: what they decide today is what is compared.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from postroom.dispatcher import AsyncDispatcher
from postroom.mailbox import keys, watch
from postroom.mailbox.connect import connect_async
from postroom.mailbox.contracts import Message, RunRecord, parse
from postroom.mailbox.errors import EventsTrimmed, InvalidInput, PostroomError
from postroom.mailbox.group import Group
from postroom.mailbox.ids import new_id
from postroom.mailbox.log import Entry
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings
from postroom.worker.activation import activate
from postroom.worker.agent_loop import AgentLoop, Plans
from postroom.worker.app import App
from postroom.worker.core.calls import Outcome
from postroom.worker.desk import Desk
from postroom.worker.loop import Loop
from postroom.worker.model.base import Limits, Part, Request
from postroom.worker.model.errors import RequestRejected
from postroom.worker.plan import Plan
from postroom.worker.recording import Expiry, Plain, Recording
from postroom.worker.remote.attending import RemotePlan
from postroom.worker.stored import StoredAgents
from postroom.worker.tools.base import Retry, Tool, ToolContext

# A run that was ended from outside, or by what failed outside, would not end so again.
REPEATABLE = frozenset({"natural_end", "behavior_requested", "stopped", "blocked"})
# A replay that dies leaves a thread behind; its run is ended by the sweep then.
LASTS_MS = 600_000
UNLIMITED = 1 << 40
Deliver = Callable[[str, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Report:
    """Whether the run came out the same; each difference is a line, notes say what could not be compared."""

    run_id: str
    same: bool
    steps: int
    messages: int
    termination: str
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def replay(url: str, settings: Settings, app: App, run_id: str) -> Report:
    """Lives a run through again and compares."""
    own = replace(settings, max_attempts=1, lease_ms=LASTS_MS)
    client = await connect_async(url)
    group = Group(client)
    try:
        async with AsyncDispatcher(url, own) as dispatcher:
            recording = await _recorded(dispatcher, run_id)
            await StoredAgents(group, app).refresh()
            config = await group.run(Op(("HGET", keys.run(recording.run.thread_id, run_id), "config"), _words))
            _check(app, recording.run, config)
            return await _Replay(group, dispatcher, own, app, recording, config).run()
    finally:
        await group.close()
        await client.aclose()


async def _recorded(dispatcher: AsyncDispatcher, run_id: str) -> Recording:
    run = await dispatcher.get_run(run_id)
    if run.termination is None:
        raise InvalidInput(f"run {run_id} is {run.status}; only a run that has ended can be replayed")
    if run.termination.kind not in REPEATABLE or run.termination.code == "deadline":
        how = f"{run.termination.kind} {run.termination.code or ''}".rstrip()
        raise InvalidInput(f"run {run_id} ended as {how}; only a run that came to its own end can be replayed")
    log = await dispatcher.messages(run.thread_id, raw=True)
    try:
        journal: list[Plain] | None = [entry.event async for entry in dispatcher.events(run_id, live=False)]
    except EventsTrimmed:
        journal = None
    return Recording(run, log, journal)


def _check(app: App, run: RunRecord, config: str) -> None:
    if not isinstance(app.loop(run.agent, config, begun=True), AgentLoop):
        raise InvalidInput(f"run {run.run_id} was served as {run.agent!r}, which is no agent with a model in this app")
    if isinstance(app.registry.plan(run.agent, config), RemotePlan):
        raise InvalidInput(f"run {run.run_id} was served by a remote agent, {run.agent!r}; it cannot be replayed here")


class _Replay:
    """One replay, from the scratch thread to the report."""

    def __init__(
        self,
        group: Group,
        dispatcher: AsyncDispatcher,
        settings: Settings,
        app: App,
        recording: Recording,
        config: str,
    ) -> None:
        self.group, self.dispatcher, self.settings, self.recording = group, dispatcher, settings, recording
        self.name = f"replay-{new_id()}"
        self.mail = recording.mail()
        self.plans = _RecordedPlans(app, recording, config, self._deliver)
        self.desk = _ReplayDesk(group, app, settings, self.name, plans=self.plans)
        self.sent: list[str] = []
        self.differences: list[str] = []
        self.run_id = ""

    async def run(self) -> Report:
        """The whole of it; the scratch thread is gone afterwards, whatever happened."""
        recording = self.recording
        try:
            await self._begin()
            await self._live()
            replayed = await self.dispatcher.get_run(self.run_id)
            events = [entry.event async for entry in self.dispatcher.events(self.run_id, live=False)]
            log = await self.dispatcher.messages(self.name, raw=True)
            self._compare(Recording(replayed, log, events))
        finally:
            await self._clear_away()
        how = recording.run.termination
        return Report(
            recording.run.run_id,
            not self.differences,
            recording.run.step,
            len(recording.entries),
            how.kind.value if how else "",
            self.differences,
            self._notes(),
        )

    async def _begin(self) -> None:
        """A thread as the other was when the run began, and the same request on it."""
        run, before = self.recording.run, max(self.recording.begins_at - 1, 0)
        await self.dispatcher.fork(run.thread_id, at=before, to=self.name, grants=True)
        body = run.request
        done = await self.dispatcher.submit(
            run.agent,
            tuple(parse(Message, each) for each in body.get("messages", ())),
            thread=self.name,
            queue=self.name,
            tenant=run.tenant,
            metadata=body.get("metadata"),
            overrides=body.get("overrides"),
            frontend_tools=body.get("frontend_tools"),
            timeout_ms=LASTS_MS,
        )
        self.run_id = done.run_id
        await self._deliver("start", 0)

    async def _deliver(self, moment: str, step: int) -> None:
        for message in self.mail.pop((moment, step), ()):
            self.sent.append(new_id())
            words = parse(Message, message)
            await self.dispatcher.send(self.name, words, mail_id=self.sent[-1], queue=self.name)

    async def _live(self) -> None:
        """Activation after activation, with the decisions of then, until the run is done."""
        decisions = list(self.recording.decisions)
        while True:
            await activate(self.desk, self.name, self.run_id)
            run = await self.dispatcher.get_run(self.run_id)
            if run.status == "done":
                return
            if run.status != "waiting" or not decisions:
                self.differences.append(f"the replay is {run.status} at step {run.step}, where the run went on")
                await self.dispatcher.cancel(self.run_id)
                return
            await self._decide(run, decisions.pop(0))

    async def _decide(self, run: RunRecord, decision: Any) -> None:
        if isinstance(decision, Expiry):
            await self.group.run(watch.reclaim(self.name, 1, "", now=(run.wake or 0) + 1))
            return
        try:
            await self.dispatcher.decide_many(self.run_id, [decision])
        except PostroomError as error:
            self.differences.append(f"the decision about {decision.target} finds no ticket: {error.message}")

    def _compare(self, replayed: Recording) -> None:
        then, now = self.recording, replayed
        if then.whole and not self.plans.filtered:
            self.differences += [f"the recording contradicts itself in {each}" for each in then.contradictions()]
        for place in range(max(len(then.entries), len(now.entries))):
            was, is_now = _shown(then.entries, place), _shown(now.entries, place)
            if was != is_now:
                self.differences.append(f"message {place + 1}: recorded {was}, replayed {is_now}")
        for what, was, is_now in (
            ("termination", _how(then.run), _how(now.run)),
            ("steps", str(then.run.step), str(now.run.step)),
        ):
            if was != is_now:
                self.differences.append(f"{what}: recorded {was}, replayed {is_now}")
        if then.whole and then.result != now.result:
            self.differences.append(f"result: recorded {then.result}, replayed {now.result}")
        self.differences += [f"mail {each} was not read again" for each in self.mail.values() if each]

    def _notes(self) -> list[str]:
        notes = [] if self.recording.whole else ["the journal is gone or trimmed: what tools returned is known as text"]
        if self.plans.filtered:
            notes.append("answers are rewritten by a plugin: the log was not compared with the journal")
        return notes

    async def _clear_away(self) -> None:
        # What failed must not be hidden by this; what is left behind ends with its deadline and expires.
        with suppress(PostroomError):
            if self.run_id:
                await self.dispatcher.cancel(self.run_id)
            await self.dispatcher.delete_thread(self.name)
        queue = f"rq:queue:{self.name}"
        rung = await self.group.run(Op(("LRANGE", queue, 0, -1), lambda reply: [each.decode() for each in reply]))
        left = [queue, *(f"rq:job:{job}" for job in rung), *(keys.dedupe_mail(self.name, mail) for mail in self.sent)]
        await self.group.run_all([Op(("DEL", *left), int), Op(("SREM", "rq:queues", queue), int)])


@dataclass
class _ReplayDesk(Desk):
    """A desk whose runs are served from the recording, and where effects stay where they are."""

    plans: Plans | None = None

    async def loop(self, agent: str, pinned: str, begun: bool) -> Loop | None:
        return AgentLoop(self.plans) if self.plans else None

    def send_off(self, effect: Callable[[], Awaitable[None]]) -> None:
        """Effects had their time."""


class _RecordedPlans:
    """The app's plans, with the model and the tools of the recording."""

    def __init__(self, app: App, recording: Recording, config: str, deliver: Deliver) -> None:
        self.app, self.recording, self.config, self.deliver = app, recording, config, deliver
        self.agents = frozenset(app.agents)
        self.filtered = False
        self.answers = recording.answers()
        self._made: dict[int, tuple[Plan, Plan]] = {}

    async def find(self, agent: str, pinned: str = "") -> Plan | None:
        """The plan of an agent as of the run, once made the same one ever after."""
        plan = await self.app.registry.find(agent, self.config)
        if not isinstance(plan, Plan):
            return None
        self.filtered = self.filtered or bool(plan.reply_filters)
        if id(plan) not in self._made:
            self._made[id(plan)] = plan, self._recorded(plan)
        return self._made[id(plan)][1]

    def _recorded(self, plan: Plan) -> Plan:
        model = _RecordedModel(plan.model.name, plan.model.limits, self.answers, self.deliver)
        return replace(
            plan,
            model=model,
            summariser=model,
            tools={name: self._tool(tool) for name, tool in plan.tools.items()},
            compaction=plan.compaction.model_copy(update={"mode": "off"}),
        )

    def _tool(self, tool: Tool) -> Tool:
        async def run(arguments: Any, context: ToolContext) -> Outcome:
            await self.deliver("tool", context.step)
            return self.recording.outcome(context, self.agents)

        return replace(tool, run=run, timeout=None, retry=Retry(), output_limit=UNLIMITED)


class _RecordedModel:
    """Gives the answers of the recording, one after the other, whoever asks."""

    def __init__(self, name: str, limits: Limits, answers: list[tuple[int, list[Part]]], deliver: Deliver) -> None:
        self.name, self.limits, self._answers, self._deliver = name, limits, answers, deliver

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        """The next answer."""
        if not self._answers:
            raise RequestRejected("the recording has no further answer of the model")
        step, parts = self._answers.pop(0)
        await self._deliver("model", step)
        for part in parts:
            await asyncio.sleep(0)
            yield part


def _shown(entries: list[Entry], place: int) -> str:
    """A message as it is compared: ids are given anew, everything else must be the same."""
    if place >= len(entries):
        return "nothing"
    kept = {name: value for name, value in entries[place].message.items() if name != "id"}
    return f"(step {entries[place].step}) {dict(sorted(kept.items()))}"


def _how(run: RunRecord) -> str:
    how = run.termination
    return " ".join(part for part in (how.kind.value, how.code, how.message) if part) if how else "nothing"


def _words(reply: bytes | None) -> str:
    return reply.decode() if reply else ""

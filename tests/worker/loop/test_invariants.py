"""What holds for every run, whatever models say, tools do, people decide and workers survive: random runs on a server.

Numbers in the names are those of the invariants a fleet of agents is held to. A run is a script of random answers; it
is served by workers that die at random points, decided about at random, written to and cancelled in between.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Stage
from hypothesis import strategies as st

from postroom.mailbox import commit, lock, ops, watch
from postroom.mailbox.commit import Batch, Owner
from postroom.mailbox.errors import PostroomError
from postroom.worker.app import Agent, App, Behaviour
from postroom.worker.core import tokens
from postroom.worker.core.actions import exclude_tool
from postroom.worker.core.command import Command, Phase
from postroom.worker.core.context import ContextPolicy
from postroom.worker.core.state import Merge, Scope, StateKey
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.plugins.base import HookContext, Plugin, Registrar
from postroom.worker.tools import Finish, Handoff, Output, Suspend, ToolContext, tool
from tests.worker.loop.office import POINTS, Office, Plain, in_order, valid

random_runs = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    # A run takes a tenth of a second: making a failing one smaller would take minutes.
    phases=[Stage.explicit, Stage.generate],
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)

COUNT: StateKey[int, int] = StateKey("count", 0, lambda old, new: old + new, merge=Merge.COMMUTATIVE)
TRACE: StateKey[list[str], str] = StateKey(
    "trace", [], lambda old, new: [*old, new], Scope.THREAD, merge=Merge.COMMUTATIVE
)
SLOT: StateKey[str, str] = StateKey("slot", "")
ended: Counter[tuple[str, str]] = Counter()


def _ended(ctx: ToolContext) -> str:
    ended[ctx.idempotency_key.removeprefix(ctx.run_id), ctx.tool] += 1
    return f"{ctx.tool} done"


@tool(idempotent=True)
def good(ctx: ToolContext) -> str:
    """Works."""
    return _ended(ctx)


@tool(idempotent=True)
async def bump(ctx: ToolContext) -> Output:
    """Counts."""
    return Output(_ended(ctx), updates=[COUNT.update(1), TRACE.update(ctx.call_id)])


@tool(idempotent=True)
async def grab(ctx: ToolContext) -> Output:
    """Wants something for itself."""
    return Output(_ended(ctx), updates=[SLOT.update(ctx.call_id)])


@tool(idempotent=True, parallel_safe=False)
def alone(ctx: ToolContext) -> Output:
    """Runs with nobody beside it."""
    return Output(_ended(ctx), updates=[SLOT.update(ctx.call_id), TRACE.update(ctx.call_id)])


@tool(idempotent=True)
def failing(ctx: ToolContext) -> str:
    """Never works."""
    raise ValueError(_ended(ctx))


@tool(idempotent=True, needs_approval=True)
def risky(ctx: ToolContext) -> Output:
    """Somebody is asked first."""
    return Output(_ended(ctx), updates=[COUNT.update(10)])


@tool(idempotent=True)
async def asking(ctx: ToolContext) -> Any:
    """Asks somebody itself."""
    return Suspend("How many?") if ctx.decision is None else f"{_ended(ctx)}: {ctx.decision.result}"


@tool(idempotent=True)
def hidden(ctx: ToolContext) -> str:
    """Is not offered in any step."""
    return _ended(ctx)


@tool(idempotent=True)
def finish(ctx: ToolContext) -> Finish:
    """Ends the run."""
    return Finish(_ended(ctx))


@tool(idempotent=True)
def transfer(ctx: ToolContext) -> Handoff:
    """Hands over."""
    _ended(ctx)
    return Handoff("boss" if ctx.agent == "clerk" else "clerk")


@tool
def once(ctx: ToolContext) -> str:
    """Cannot be repeated."""
    return _ended(ctx)


class Watching(Plugin):
    """Counts what it sees, and hides a tool."""

    id = "watching"

    def register(self, registrar: Registrar) -> None:
        registrar.key(COUNT, TRACE, SLOT)
        registrar.hook(Phase.BEFORE_INFERENCE, lambda _: Command(actions=(exclude_tool("hidden"),)))
        registrar.hook(Phase.AFTER_TOOL_EXECUTE, self._after)
        registrar.hook(Phase.STEP_END, lambda _: Command((COUNT.update(100),)))

    def _after(self, context: HookContext) -> Command:
        return Command((COUNT.update(1000),)) if context.call and context.call.name != "alone" else Command()


TOOLS = (good, bump, grab, alone, failing, risky, asking, hidden, finish, transfer, once)
CALLS: dict[str, Plain] = {
    "nosuch": {"name": "nosuch"},
    "malformed": {"name": "good", "arguments": "{oops"},
    "wrong": {"name": "good", "arguments": {"more": 1}},
    **{each.name: {"name": each.name} for each in TOOLS},
}
REPEATABLE = sorted(CALLS.keys() - {"once"})
ACTIONS = ("allow_once", "allow_always", "answer", "deny", "cancel", "deny_and_stop")


def scripts(names: list[str]) -> st.SearchStrategy[list[Plain]]:
    """Answers with calls; the run ends with words after them."""
    calls = st.lists(st.sampled_from(names), min_size=1, max_size=4)
    return st.lists(calls, max_size=3).map(lambda steps: [{"calls": [CALLS[name] for name in step]} for step in steps])


deaths = st.lists(st.tuples(st.sampled_from(POINTS), st.integers(1, 3)), max_size=4)


@contextmanager
def _office(url: str, script: list[Plain], parallel: int = 4) -> Iterator[Office]:
    ended.clear()
    model = ScriptedModel([*script, *["Done."] * 12])
    agents = [
        Agent(name, model=model, tools=TOOLS, plugins=[Watching()], behaviour=Behaviour(parallel=parallel))
        for name in ("clerk", "boss")
    ]
    with Office(url, App(agents), max_attempts=100) as office:

        def look(point: str) -> None:
            if point in ("after_commit", "call_journaled"):
                valid(office.log())

        office.look = look
        yield office


class Course:
    """A run on its way to the end; checks after each stint what must always hold."""

    def __init__(self, office: Office, run: str, choose: Callable[[str], str]) -> None:
        self.office, self.run, self.choose = office, run, choose
        self.allowed: set[str] = set()
        self.granted: set[str] = set()
        self.journaled: dict[tuple[str, str], int] = {}

    def decide(self, some: int = 0) -> None:
        """Answers open tickets; all, or all but the first few."""
        tickets = [call for call in self.office.dispatcher.calls(self.run) if call.ticket_status == "open"]
        for call in tickets[min(some, len(tickets) - 1) :]:
            action = self.choose(call.call_id)
            if action == "allow_always" and call.name != "risky":
                action = "allow_once"
            self.office.dispatcher.decide(self.run, call.call_id, action, result=7)
            if action in ("allow_once", "allow_always", "answer"):
                self.allowed.add(call.call_id)
            if action == "allow_always":
                self.granted.add(call.name)

    def serve(self, die_at: str = "", nth: int = 1) -> None:
        """One stint."""
        if self.office.serve(self.run, die_at, nth):
            done = {call.call_id for call in self.office.dispatcher.calls(self.run) if call.status == "succeeded"}
            self.journaled |= {key: times for key, times in ended.items() if _call(key) in done}
        self.check()

    @property
    def status(self) -> str:
        return str(self.office.record(self.run).status)

    def to_the_end(self, dying: list[tuple[str, int]]) -> None:
        """Serves until the run is done; the first workers die."""
        left = list(dying)
        while self.status != "done":
            if self.status == "waiting":
                self.decide()
            self.serve(*(left.pop(0) if left else ("", 1)))

    def check(self) -> None:
        """1, 3, 4, 5, 6, 9, and that nothing that was finished happens again."""
        office = self.office
        valid(office.log())
        entries = list(office.dispatcher.events(self.run, live=False))
        assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
        told = [entry.event for entry in entries]
        types = [event["type"] for event in told]
        in_order(types)
        steps = [int(event["message_id"].rpartition(".")[2]) for event in told if event["type"] == "step_start"]
        assert steps == list(range(1, len(steps) + 1)), "step numbers rise one by one and resuming uses none up"
        assert self.journaled == {key: ended[key] for key in self.journaled}, "a call that had finished ran again"
        for key in ended:
            assert key[1] != "hidden", "a tool that was not offered was carried out"
            if key[1] == "risky" and "risky" not in self.granted:
                assert _call(key) in self.allowed, "a call was carried out before anybody had allowed it"
        if self.status == "done":
            assert types.count("run_finish") == 1
            assert types[-1] == "run_finish"
            assert office.dispatcher.holder(office.thread) is None


def _call(key: tuple[str, str]) -> str:
    return key[0].rpartition("/")[2]


def _outcome(office: Office, run: str) -> Any:
    record = office.record(run)
    state = {name: value for name, value in office.state(run).items() if not name.startswith("runtime.run_stats")}
    log = [{name: value for name, value in message.items() if name != "id"} for message in office.log()]
    grants = {name: None for name in state if name.startswith("grant")}
    return log, record.termination, record.step, {**state, **grants}


@random_runs
@given(scripts(REPEATABLE), deaths, st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=6), st.sampled_from([1, 4]))
def test_2_deaths_change_neither_history_nor_outcome_nor_state(
    server_url: str, script: list[Plain], dying: list[tuple[str, int]], actions: list[str], parallel: int
) -> None:
    def choose(call_id: str) -> str:
        return actions[sum(map(ord, call_id)) % len(actions)]

    results = []
    for points in ([], dying):
        with _office(server_url, script, parallel) as office:
            run = office.submit()
            Course(office, run, choose).to_the_end(points)
            results.append((_outcome(office, run), sorted(ended)))
    assert results[0] == results[1]


@random_runs
@given(scripts(sorted(CALLS)), st.data(), st.sampled_from([1, 4]))
def test_1_3_4_5_6_9_hold_whatever_happens(
    server_url: str, script: list[Plain], data: st.DataObject, parallel: int
) -> None:
    with _office(server_url, script, parallel) as office:
        run = office.submit()
        course = Course(office, run, lambda _: data.draw(st.sampled_from(ACTIONS)))
        for _ in range(20):
            if course.status == "done":
                break
            happens = data.draw(st.sampled_from(["nothing"] * 6 + ["mail", "mail", "steer", "cancel"]))
            if happens == "mail":
                office.dispatcher.send(office.thread, "by the way")
            elif happens == "steer":
                office.dispatcher.steer(office.thread, "rather this")
            elif happens == "cancel":
                office.dispatcher.cancel(run)
                continue
            if course.status == "waiting":
                course.decide(data.draw(st.integers(0, 2)))
            course.serve(*data.draw(st.sampled_from([("", 1), *((point, nth) for point in POINTS for nth in (1, 2))])))
        course.to_the_end([])


# -- 7: after a cancel was seen ----------------------------------------------------------------------------------------


@random_runs
@given(scripts(sorted(CALLS)), st.sampled_from(POINTS), st.integers(1, 3))
def test_7_nothing_is_begun_once_a_cancel_was_seen(server_url: str, script: list[Plain], point: str, nth: int) -> None:
    seen_at: list[int] = []
    with _office(server_url, script) as office:
        run = office.submit()

        def hear() -> None:
            """What a worker does when it is told of a cancel."""
            if run in office.desk.active:
                office.desk.active[run].request_cancel("cancelled")
                seen_at.append(len(office.points))

        def look(reached: str) -> None:
            if reached == point and office.points.count(point) == nth:
                asyncio.get_running_loop().call_soon(hear)

        office.look = look
        office.serve(run)
        if seen_at:
            later = office.points[seen_at[0] :]
            assert not {"before_model", "tool_started"} & set(later)
        valid(office.log())
        in_order(office.types(run))
        assert office.types(run).count("run_finish") == (office.record(run).status == "done")


# -- 8: the budget -----------------------------------------------------------------------------------------------------


@random_runs
@given(
    st.lists(st.integers(0, 4000), min_size=1, max_size=6),
    st.lists(st.integers(0, 4000), min_size=1, max_size=6),
    st.integers(300, 3000),
)
def test_8_a_request_never_exceeds_the_budget(
    server_url: str, said: list[int], answers: list[int], window: int
) -> None:
    class Wordy(Plugin):
        """Adds to every request after it was put together."""

        id = "wordy"

        def register(self, registrar: Registrar) -> None:
            note = {"role": "system", "content": [{"type": "text", "text": "n" * 300}]}
            registrar.transform(lambda messages, _: (*messages, note))

    model = ScriptedModel(lambda request: "a" * answers[len(request.messages) % len(answers)] + ".")
    policy = ContextPolicy(max_context_tokens=window, max_output_tokens=100)
    agent = Agent("clerk", model=model, instructions="i" * 100, tools=[good], plugins=[Wordy()], context=policy)
    with Office(server_url, App([agent])) as office:
        for length in said:
            run = office.run("u" * length or "u")
            record = office.record(run)
            assert record.termination.kind == "natural_end" or record.termination.code == "context_window_too_small"
    for request in model.requests:
        spent = sum(map(tokens.of_message, request.messages)) + sum(map(tokens.of_tool, request.tools))
        assert spent <= policy.input_tokens
        valid(request.messages)


# -- 10: the fence -----------------------------------------------------------------------------------------------------


@random_runs
@given(scripts(sorted(CALLS)), st.sampled_from(POINTS), st.integers(1, 2))
def test_10_a_worker_whose_thread_was_taken_commits_nothing(
    server_url: str, script: list[Plain], point: str, nth: int
) -> None:
    with _office(server_url, script) as office:
        run = office.submit()
        looked = office.look
        taken: list[tuple[int, list[Plain], list[Plain]]] = []

        def steal(reached: str) -> None:
            looked(reached)
            if reached == point and office.points.count(point) == nth and not taken:
                client, thread = office.dispatcher.client, office.thread
                ops.run(client, watch.reclaim(thread, 100, "worker-1"))
                try:
                    claim = ops.run(client, lock.claim(thread, run, "thief", 60_000))
                except PostroomError:
                    return  # it had ended or waits
                taken.append((claim.fence, office.log(), office.events(run)))

        office.look = steal
        office.serve(run)
        if taken:
            fence, log, told = taken[0]
            holder = office.dispatcher.holder(office.thread)
            assert holder is not None
            assert (holder.worker, holder.fence) == ("thief", fence)
            assert (office.log(), office.events(run)) == (log, told)
            commits = office.record(run).commits
            ops.run(office.dispatcher.client, commit.commit(Owner(office.thread, run, fence), Batch(commits + 1)))


# -- merging: what runs side by side ends the same, whoever is first ---------------------------------------------------


def _updates(names: list[str], place: int) -> tuple[Any, ...]:
    made = {"count": COUNT.update(place + 1), "trace": TRACE.update(f"tool {place}"), "slot": SLOT.update(str(place))}
    return tuple(made[name] for name in names)


class Nosy(Plugin):
    """Wants changes before and after calls, and takes its time."""

    id = "nosy"

    def __init__(self, before: list[list[str]], after: list[list[str]], patience: list[int]) -> None:
        self.before, self.after, self.patience = before, after, patience

    def register(self, registrar: Registrar) -> None:
        registrar.key(COUNT, TRACE, SLOT)
        registrar.action("note", lambda _, payload: Command((TRACE.update(payload),)))
        registrar.hook(Phase.BEFORE_TOOL_EXECUTE, self._before)
        registrar.hook(Phase.AFTER_TOOL_EXECUTE, self._after)

    async def _before(self, context: HookContext) -> Command:
        assert context.call
        place = context.call.index
        for _ in range(self.patience[place % len(self.patience)]):
            await asyncio.sleep(0)
        seen = f"{place} begins after {context.state[TRACE]}"
        return Command((*_updates(self.before[place], place), TRACE.update(seen)))

    async def _after(self, context: HookContext) -> Command:
        assert context.call
        place = context.call.index
        seen = TRACE.update(f"{place} ends after {context.state[TRACE]}")
        later = context.state[COUNT]
        updates = tuple(each for each in _updates(self.after[place], place) if each.key != "slot")
        return Command((*updates, seen, COUNT.update(later * 7)))


kinds = st.lists(st.sampled_from(["count", "trace", "slot"]), unique=True)


def _merged(
    url: str, wants: list[list[str]], plugin: Nosy, order: list[int], suspends: bool
) -> tuple[Any, Any, list[str]]:
    gates: dict[int, asyncio.Event] = {}
    finished: list[str] = []

    @tool(idempotent=True)
    async def work(place: int) -> Output:
        """Ends when its turn has come."""
        gate = gates.setdefault(place, asyncio.Event())
        if place != order[0]:
            await gate.wait()
        finished.append(str(place))
        turn = order.index(place) + 1
        if turn < len(order):
            gates.setdefault(order[turn], asyncio.Event()).set()
        return Output(f"done {place}", updates=_updates(wants[place], place))

    calls: list[Plain] = [{"name": "work", "arguments": {"place": place}} for place in range(len(wants))]
    if suspends:
        calls.append({"name": "risky"})
    model = ScriptedModel([{"calls": calls}, "Done."])
    agent = Agent("clerk", model=model, tools=[work, risky], plugins=[plugin], behaviour=Behaviour(parallel=8))
    with Office(url, App([agent])) as office:
        run = office.run()
        if suspends:
            office.dispatcher.decide(run, f"call-1-{len(calls)}", "allow_once")
            office.serve(run)
        (_, termination, _, state) = _outcome(office, run)
        assert termination.kind == "natural_end"
        log = [(message["role"], message.get("content")) for message in office.log()]
        return log, {name: state.get(name) for name in ("count", "trace", "slot")}, finished


@random_runs
@given(
    st.lists(kinds, min_size=2, max_size=5),
    st.lists(kinds, min_size=6, max_size=6),
    st.lists(kinds, min_size=6, max_size=6),
    st.lists(st.integers(0, 5), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_what_ran_side_by_side_merges_the_same_whoever_was_first(
    server_url: str,
    wants: list[list[str]],
    before: list[list[str]],
    after: list[list[str]],
    patience: list[int],
    shuffle: Any,
    suspends: bool,
) -> None:
    in_turn = list(range(len(wants)))
    shuffled = shuffle.sample(in_turn, len(in_turn))
    first = _merged(server_url, wants, Nosy(before, after, [0]), in_turn, suspends)
    second = _merged(server_url, wants, Nosy(before, after, patience), shuffled, suspends)
    assert second[2] == [str(place) for place in shuffled], "the order was not the one that was asked for"
    assert first[:2] == second[:2]


def test_what_a_call_changed_counts_once_however_often_its_run_waits(server_url: str) -> None:
    script = [{"calls": [CALLS[name] for name in ("bump", "risky", "risky")]}]
    with _office(server_url, script) as office:
        run = office.run()
        for call in ("call-1-2", "call-1-3"):
            office.dispatcher.decide(run, call, "allow_once")
            office.serve(run)
        state = office.state(run)
        assert state["trace"] == ["call-1-1"]
        # Three calls were completed, 1 and twice 10; three stints of the calls' step ended, and the last one's.
        assert state["count"] % 100 == 21
        assert state["count"] // 1000 == 3


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("die_at", ["", "call_journaled"])
def test_a_clash_is_the_later_calls_whoever_was_first_and_whoever_dies(
    server_url: str, first: int, die_at: str
) -> None:
    """Also when a sibling has the run wait, so that the journal outlives the worker that found the clash."""
    first_ended = asyncio.Event()

    @tool(idempotent=True)
    async def take(place: int) -> Output:
        """Wants something for itself; one of the two ends first."""
        if place == first:
            first_ended.set()
        await first_ended.wait()
        return Output(f"took {place}", updates=[SLOT.update(str(place))])

    takes: list[Plain] = [{"name": "take", "arguments": {"place": place}} for place in (0, 1)]
    model = ScriptedModel([{"calls": [*takes, {"name": "risky"}]}, "Done."])
    with Office(server_url, App([Agent("clerk", model=model, tools=[take, risky], plugins=[Watching()])])) as office:
        run = office.submit()
        if die_at:
            assert office.serve(run, die_at)
        office.serve(run)
        office.dispatcher.decide(run, "call-1-3", "allow_once")
        office.serve(run)
        assert office.record(run).termination.kind == "natural_end"
        assert office.state(run)["slot"] == "0"
        results = [words for role, words in office.words() if role == "tool"]
        assert results[0] == "took 0"
        assert "exclusive" in results[1]
        valid(office.log())

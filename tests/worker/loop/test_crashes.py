"""A worker dies at every named point of every kind of run: the next one brings it to the same end."""

from collections import Counter
from typing import Any

import pytest

from postroom.worker.app import Agent, App
from postroom.worker.core.compaction import CompactionPolicy
from postroom.worker.core.context import ContextPolicy
from postroom.worker.model.base import Request
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.tools import Handoff, Tool, ToolContext, tool
from tests.worker.loop.office import POINTS, Office, in_order, text, valid

effects: Counter[str] = Counter()
finished: Counter[str] = Counter()


def _effect(ctx: ToolContext) -> str:
    """What a well-behaved tool does outside: once for each key, however often it is called."""
    effects[ctx.idempotency_key] = 1
    finished[ctx.idempotency_key] += 1
    return f"{ctx.tool} done"


@tool(idempotent=True)
def one(ctx: ToolContext) -> str:
    """One."""
    return _effect(ctx)


@tool(idempotent=True)
def two(ctx: ToolContext) -> str:
    """Two."""
    return _effect(ctx)


@tool(idempotent=True)
def three(ctx: ToolContext) -> str:
    """Three."""
    return _effect(ctx)


@tool(idempotent=True, needs_approval=True)
def risky(ctx: ToolContext) -> str:
    """Somebody is asked first."""
    return _effect(ctx)


@tool(idempotent=True)
def transfer(ctx: ToolContext) -> Handoff:
    """Hands over."""
    _effect(ctx)
    return Handoff("boss")


TOOLS: tuple[Tool, ...] = (one, two, three, risky, transfer)


def _calls(*names: str) -> dict[str, Any]:
    return {"calls": [{"name": name} for name in names]}


SCRIPTS: dict[str, list[Any]] = {
    "no tools": ["Hello."],
    "one tool": [_calls("one"), "Done."],
    "three tools": [_calls("one", "two", "three"), "Done."],
    "suspension": [_calls("one", "risky"), "Done."],
    "handoff": [_calls("transfer"), "This is the boss."],
    "compaction": [],
}


def _after_much_talk(request: Request) -> Any:
    """Goes by what was said and not by how often, since a summary hides that."""
    said = [text(message) for message in request.messages]
    if said[-1] == "Tell me a lot.":
        return "word " * 4000
    for name in ("one", "two"):
        if f"{name} done" not in said:
            return {"calls": [{"name": name, "id": name}]}
    return "Done."


def _office(url: str, kind: str) -> Office:
    effects.clear()
    finished.clear()
    model = ScriptedModel(SCRIPTS[kind] or _after_much_talk)
    summariser = ScriptedModel(lambda _: "Much was said.", name="summariser")
    policy = ContextPolicy(autocompact_threshold=2000) if kind == "compaction" else None
    agents = [
        Agent(
            name,
            model=model,
            tools=TOOLS,
            instructions=name,
            context=policy,
            compaction=CompactionPolicy(summary_model="summariser"),
        )
        for name in ("clerk", "boss")
    ]
    office = Office(url, App(agents, models={"summariser": summariser}), max_attempts=100)
    if kind == "compaction":
        office.run("Tell me a lot.")
    return office


def _to_the_end(office: Office, run: str, die_at: str = "", nth: int = 1) -> int:
    """Serves the run until it is done, saying yes to what is asked; how often a worker died."""
    deaths = 0
    journaled: dict[str, int] = {}
    while (record := office.record(run)).status != "done":
        if record.status == "waiting":
            for call in office.dispatcher.calls(run):
                if call.ticket_status == "open":
                    office.dispatcher.decide(run, call.call_id, "allow_once")
        if office.serve(run, die_at if not deaths else "", nth):
            deaths += 1
            done = {call.call_id for call in office.dispatcher.calls(run) if call.status == "succeeded"}
            journaled = {key: times for key, times in finished.items() if key.rpartition("/")[2] in done}
    assert journaled == {key: finished[key] for key in journaled}, "a call that had finished was run again"
    return deaths


def _crashes(office: Office, run: str) -> int:
    return sum(1 for event in office.events(run) if event["type"] == "run_requeued" and event["reason"] == "crash")


def _plain(office: Office) -> list[Any]:
    return [{name: value for name, value in message.items() if name != "id"} for message in office.log()]


@pytest.fixture(scope="module")
def undisturbed(server_url: str) -> dict[str, list[Any]]:
    """What each kind of run says when nobody dies."""
    logs = {}
    for kind in SCRIPTS:
        with _office(server_url, kind) as office:
            run = office.submit()
            _to_the_end(office, run)
            assert office.record(run).termination.kind == "natural_end"
            logs[kind] = _plain(office)
    return logs


@pytest.mark.parametrize("kind", SCRIPTS)
@pytest.mark.parametrize("point", POINTS)
def test_a_death_changes_nothing(server_url: str, undisturbed: dict[str, list[Any]], kind: str, point: str) -> None:
    nth = 1
    while True:
        with _office(server_url, kind) as office:
            run = office.submit()
            deaths = _to_the_end(office, run, point, nth)
            if not deaths:
                break
            assert _plain(office) == undisturbed[kind]
            valid(office.log())
            in_order(office.types(run))
            assert office.types(run).count("run_finish") == 1
            assert set(effects.values()) <= {1}
            record = office.record(run)
            assert (record.status, record.attempts) == ("done", _crashes(office, run))
            assert office.dispatcher.holder(office.thread) is None
        nth += 1
    reached = point in office.points
    assert reached == (nth > 1), f"{point} was reached but no worker died there"


def test_every_point_is_passed_by_some_run(server_url: str) -> None:
    passed: set[str] = set()
    for kind in SCRIPTS:
        with _office(server_url, kind) as office:
            _to_the_end(office, office.submit())
            passed |= set(office.points)
    assert passed == set(POINTS)


def test_a_call_that_cannot_be_repeated_is_reported(server_url: str) -> None:
    runs = []

    @tool
    def once() -> str:
        """Must not be repeated."""
        runs.append(1)
        return "done"

    app = App([Agent("clerk", model=ScriptedModel([_calls("once"), "I will check."]), tools=[once])])
    with Office(server_url, app) as office:
        run = office.submit()
        assert office.serve(run, "tool_finished")
        office.serve(run)
        assert runs == [1]
        assert "not known" in office.words()[-2][1]
        valid(office.log())
        assert office.record(run).status == "done"

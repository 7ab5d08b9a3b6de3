"""Agents as tools: a child does the work elsewhere while its parent waits without a worker."""

from typing import Any

import pytest

from postroom.mailbox import keys
from postroom.mailbox.contracts import Ticket
from postroom.mailbox.errors import InvalidInput
from postroom.worker import Agent, App, Behaviour, Finish, tool
from postroom.worker.core.delegation import deadline, reason, share
from postroom.worker.core.stop import MaxCost, RunStats, StopPolicy, TokenBudget, WallClock
from postroom.worker.model.base import Request
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.plan import Plan
from tests.worker.fleet import LONG
from tests.worker.loop.office import POINTS, in_order, text, valid
from tests.worker.together.town import Town, calling


@tool(needs_approval=True, idempotent=True)
def risky() -> str:
    """Somebody is asked first."""
    return "done"


@tool
def done(answer: str) -> Finish:
    """Ends the work."""
    return Finish({"answer": answer})


def ask(*prompts: str, agent: str = "helper") -> dict[str, Any]:
    return {"calls": [{"name": f"agent_run_{agent}", "arguments": {"prompt": prompt}} for prompt in prompts]}


def echo(request: Request) -> Any:
    return f"I did: {text(request.messages[-1])}"


def town(url: str, script: Any, helper: Any = echo, settings: Any = None, **about: Any) -> Town:
    agents = [
        Agent("clerk", model=ScriptedModel(script), delegates=["helper"], **about),
        Agent("helper", model=ScriptedModel(helper), tools=[risky, done], description="Helps."),
    ]
    return Town(url, App(agents), **(settings or {}))


def test_the_answer_of_a_child_is_the_result_of_the_call(server_url: str) -> None:
    with town(server_url, [ask("dig"), "It is dug."]) as office:
        run = office.submit()
        office.work(bells=1)
        waiting = office.record(run)
        assert (waiting.status, waiting.waiting, waiting.worker) == ("waiting", "tasks", None)
        assert office.dispatcher.holder(office.thread) is None
        office.work()
        (result,) = office.tool_results()
        child = next(each for each in office.runs() if each.startswith("sub-"))
        assert result == {
            "agent_id": "helper", "status": "completed", "response": "I did: dig", "output": None, "steps": 1
        }  # fmt: skip
        record = office.record(run)
        assert record.termination.kind == "natural_end"
        assert office.words()[-1] == ("assistant", "It is dug.")
        valid(office.log())
        in_order([kind for kind in office.types(run) if kind != "child_event"])
        parent = office.record(child).parent
        assert (parent.thread_id, parent.run_id, parent.depth) == (office.thread, run, 1)
        assert office.record(child).thread_id == child
        # Two steps of our own, one of the child's.
        assert record.usage.input_tokens == 30


def test_the_tool_describes_its_agent(server_url: str) -> None:
    with town(server_url, ["Hello."]) as office:
        plan = office.app.registry.plan("clerk")
        assert isinstance(plan, Plan)
        (spec,) = plan.specs
        assert (spec.name, spec.parameters["required"]) == ("agent_run_helper", ["prompt"])
        assert spec.description.endswith("Helps.")


def test_a_delegate_nobody_knows_is_found_when_the_app_is_built() -> None:
    with pytest.raises(InvalidInput, match="nobody"):
        App([Agent("clerk", model=ScriptedModel(["x"]), delegates=["nobody"])])


def test_children_of_one_step_work_side_by_side(server_url: str) -> None:
    with town(server_url, [ask("one", "two", "three"), "All done."]) as office:
        office.submit()
        office.work(bells=1)
        assert office.dispatcher.client.llen(f"rq:queue:{office.thread}") == 3
        office.work()
        assert [result["response"] for result in office.tool_results()] == [
            f"I did: {prompt}" for prompt in ("one", "two", "three")
        ]
        valid(office.log())


def test_the_output_of_a_child_comes_along(server_url: str) -> None:
    with town(server_url, [ask("dig"), "Fine."], [calling("done", answer="42")]) as office:
        office.submit()
        office.work()
        assert office.tool_results()[0]["output"] == {"answer": "42"}


@pytest.mark.parametrize(
    ("helper", "about", "status"),
    [
        ([], {}, "failed"),
        ([calling("done")] * 40, {"max_rounds": 2}, "failed"),
    ],
)
def test_a_child_that_fails_is_an_error_the_model_reads(server_url: str, helper: Any, about: Any, status: str) -> None:
    agents = [
        Agent("clerk", model=ScriptedModel([ask("dig"), "Too bad."]), delegates=["helper"]),
        Agent("helper", model=ScriptedModel(helper), tools=[done], **about),
    ]
    with Town(server_url, App(agents)) as office:
        run = office.submit()
        office.work()
        (message,) = [message for message in office.log() if message["role"] == "tool"]
        assert message["metadata"]["error"]
        assert text(message).startswith(f"helper {status}: ")
        assert office.record(run).termination.kind == "natural_end"


def test_a_cancelled_child_is_an_error_the_model_reads(server_url: str) -> None:
    with town(server_url, [ask("dig"), "Too bad."]) as office:
        run = office.submit()
        office.work(bells=1)
        (child,) = [each for each in office.runs() if each.startswith("sub-")]
        office.dispatcher.cancel(child)
        office.sweep()
        office.work()
        assert office.words()[-2][1] == "helper cancelled: cancelled"
        assert office.record(run).status == "done"


def test_what_a_child_asks_shows_up_at_its_parent_and_is_decided_at_the_child(server_url: str) -> None:
    with town(server_url, [ask("dig"), "It is dug."], [calling("risky"), "Dug."]) as office:
        run = office.submit()
        office.work()
        assert office.record(run).waiting == "tasks"
        events = [event for event in office.events(run) if event["type"] == "child_event"]
        (asked,) = [event for event in events if event["event"]["type"] == "run_waiting"]
        child = asked["child_run_id"]
        (ticket,) = asked["event"]["tickets"]
        assert (asked["agent"], ticket["tool"]) == ("helper", "risky")
        office.dispatcher.decide(child, ticket["id"], "allow_once")
        office.work()
        assert office.tool_results()[0]["response"] == "Dug."
        assert office.record(run).status == "done"


def test_a_child_is_seen_at_work_by_those_who_follow_its_parent(server_url: str) -> None:
    with town(server_url, [ask("dig"), "It is dug."]) as office:
        run = office.submit()
        office.work()
        seen = [event["event"] for event in office.events(run) if event["type"] == "child_event"]
        assert "".join(event.get("delta", "") for event in seen) == "I did: dig"
        assert seen[0]["type"] == "run_start"


def chain(url: str, levels: int, last: Any, **about: Any) -> Town:
    """Agents a0, a1, …, each of which lets the next one work."""
    agents = [
        Agent(
            f"a{level}",
            model=ScriptedModel([ask(f"level {level + 1}", agent=f"a{level + 1}"), "Passed on."]),
            delegates=[f"a{level + 1}"],
            **about,
        )
        for level in range(levels)
    ]
    return Town(url, App([*agents, Agent(f"a{levels}", model=ScriptedModel(last), tools=[risky])]))


def test_what_is_asked_far_below_is_shown_to_everybody_above(server_url: str) -> None:
    with chain(server_url, 3, [calling("risky"), "Done."]) as office:
        run = office.submit(agent="a0")
        office.work()
        (asked,) = [
            event
            for event in office.events(run)
            if event["type"] == "child_event" and event["event"]["type"] == "run_waiting"
        ]
        office.dispatcher.decide(asked["child_run_id"], asked["event"]["tickets"][0]["id"], "allow_once")
        office.work()
        assert office.record(run).termination.kind == "natural_end"


def test_there_is_a_limit_to_the_depth(server_url: str) -> None:
    with chain(server_url, 6, ["Never."]) as office:
        office.submit(agent="a0")
        office.work()
        runs = office.runs()
        assert len(runs) == 5
        deepest = max(runs.values(), key=lambda each: each.parent.depth if each.parent else 0)
        assert office.log(deepest.thread_id)[-2]["metadata"]["error"]
        assert "no children" in text(office.log(deepest.thread_id)[-2])


def test_there_is_a_limit_to_the_fan_out(server_url: str) -> None:
    with town(server_url, [ask("one", "two", "three"), "Fine."], behaviour=Behaviour(children=2)) as office:
        office.submit()
        office.work()
        results = office.tool_results()
        assert [result["response"] for result in results[:2]] == ["I did: one", "I did: two"]
        assert "2 children at work" in results[2]


def test_a_child_gets_its_share_of_what_is_left(server_url: str) -> None:
    spending = {"usage": {"input_tokens": 300, "output_tokens": 100}}
    script = [{**ask("one", "two"), **spending}, {"say": "Fine.", **spending}]
    with town(server_url, script, stop=[TokenBudget(max_total=1000), MaxCost(max_usd=5)]) as office:
        run = office.submit(timeout_ms=60_000)
        office.work()
        children = [each for each in office.runs().values() if each.parent]
        assert [each.request["budget"] for each in children] == [{"max_tokens": 300, "max_usd": 2.5}] * 2
        assert {each.deadline for each in children} == {office.record(run).deadline}
        # What the children spent counts: 2 times 15 tokens beside our own 800.
        assert office.record(run).usage.input_tokens + office.record(run).usage.output_tokens == 830


def test_a_child_keeps_to_its_share(server_url: str) -> None:
    greedy = [{**calling("done"), "usage": {"input_tokens": 400, "output_tokens": 0}}] * 9
    with town(server_url, [ask("dig"), "Hm."], greedy, stop=[TokenBudget(max_total=500)]) as office:
        office.submit()
        office.work()
        assert "helper failed: token_budget" in office.words()[2][1]


def test_who_has_nothing_left_has_no_children(server_url: str) -> None:
    """A budget split too many ways is none."""
    script = [{**ask(*"abcdef"), "usage": {"input_tokens": 95, "output_tokens": 0}}, "Fine."]
    with town(server_url, script, stop=[TokenBudget(max_total=100)]) as office:
        office.submit()
        office.work()
        assert all("nothing is left" in result for result in office.tool_results())
        assert len(office.runs()) == 1


def test_budget_and_deadline_are_those_of_the_strictest() -> None:
    stats: RunStats = {"input_tokens": 10, "output_tokens": 10, "cost_usd": 1.0, "started_ms": 1000}
    stops: list[StopPolicy] = [
        TokenBudget(max_total=100),
        TokenBudget(max_total=60),
        MaxCost(max_usd=3),
        WallClock(seconds=5),
    ]
    left = share(stops, stats, 2)
    assert left
    assert (left.max_tokens, left.max_usd) == (20, 1.0)
    assert share([TokenBudget(max_total=20)], stats, 1) is None
    assert deadline(stops, stats, 9000) == 6000
    assert deadline(stops, stats, 3000) == 3000
    assert deadline([], stats, None) is None


def test_a_run_that_also_asks_a_person_waits_for_that_person() -> None:
    child = Ticket(id="delegate_run:x", call_id="c", tool="t", action="agent_delegate")
    person = Ticket(id="approve_d", call_id="d", tool="t")
    assert (reason([child]), reason([child, person])) == ("tasks", "approval")


def test_somebody_may_answer_in_the_place_of_a_child(server_url: str) -> None:
    with town(server_url, [ask("dig"), "Fine."], [calling("risky"), "Dug."]) as office:
        run = office.submit()
        office.work()
        (call,) = office.dispatcher.calls(run)
        office.dispatcher.decide(run, call.call_id, "answer", result="I dug it myself.", by="ann")
        office.work()
        assert office.words()[-2:] == [("tool", "I dug it myself."), ("assistant", "Fine.")]
        (child,) = [each for each in office.runs().values() if each.parent]
        assert (child.status, child.termination.code) == ("done", "parent_answered")


def test_a_cancel_goes_down_three_levels_and_leaves_nothing_running(server_url: str) -> None:
    with chain(server_url, 3, [calling("risky"), "Done."]) as office:
        run = office.submit(agent="a0")
        office.work()
        assert {each.status for each in office.runs().values()} == {"waiting"}
        assert len(office.dispatcher.descendants(run)) == 3
        office.dispatcher.cancel(run)
        for _ in range(4):
            office.sweep()
        office.work()
        runs = office.runs().values()
        assert len(runs) == 4
        assert {(each.status, each.termination.kind) for each in runs} == {("done", "cancelled")}
        for each in runs:
            assert not office.dispatcher.client.exists(keys.outbox(each.thread_id))
            valid(office.log(each.thread_id))


def test_newer_words_take_the_place_of_a_run_and_stop_its_children(server_url: str) -> None:
    with town(server_url, [ask("dig"), "Something else."], [calling("risky"), "Dug."]) as office:
        office.submit()
        office.work()
        later = office.submit("never mind")
        office.sweep()
        office.work()
        assert office.record(later).termination.kind == "natural_end"
        assert all(each.status == "done" for each in office.runs().values())


ALL_POINTS = (*POINTS, "carrying", "carried")


@pytest.mark.parametrize("point", ALL_POINTS)
def test_a_death_anywhere_changes_nothing(server_url: str, point: str) -> None:
    """Two children, one of which asks a person: parent, children and all they owe each other, at every point."""

    def helper(request: Request) -> Any:
        if text(request.messages[0]) == "ask" and len(request.messages) == 1:
            return calling("risky")
        return "Done."

    nth = 1
    while True:
        with town(server_url, [ask("dig", "ask"), "All done."], helper) as office:
            run = office.submit()
            deaths = office.work(point, nth)
            while office.record(run).status != "done":
                office.sweep()
                for each in office.runs().values():
                    for call in office.dispatcher.calls(each.run_id):
                        if call.ticket and call.ticket.tool == "risky" and call.ticket_status == "open":
                            office.dispatcher.decide(each.run_id, call.call_id, "allow_once", decision_id="yes")
                deaths += office.work(point if not deaths else "", nth - office.points.count(point))
            office.sweep()
            office.work()
            assert [result["response"] for result in office.tool_results()] == ["Done.", "Done."]
            assert office.words()[-1] == ("assistant", "All done.")
            runs = office.runs()
            assert len(runs) == 3
            for each in runs.values():
                assert (each.status, each.termination.kind) == ("done", "natural_end")
                valid(office.log(each.thread_id))
                in_order([kind for kind in office.types(each.run_id) if kind != "child_event"])
                assert not office.dispatcher.client.exists(keys.outbox(each.thread_id))
            if not deaths:
                break
        nth += 1 if LONG else 4
    assert nth > 1, f"nobody came to {point}"

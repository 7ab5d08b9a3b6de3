"""A local agent lets a remote one do something: like any delegate, it is a run of its own."""

from typing import Any

import pytest

from postroom.worker import Agent
from postroom.worker.model.scripted import ScriptedModel
from tests.worker.loop.office import POINTS
from tests.worker.remote.abroad import Abroad
from tests.worker.remote.agent import RemoteAgent
from tests.worker.remote.conftest import Hire
from tests.worker.together.town import calling


def boss(words: str, *more: Any) -> Agent:
    script = [calling("agent_run_clerk", prompt=words), *more, "All is well."]
    return Agent("boss", model=ScriptedModel(script), delegates=["clerk"])


def child_of(office: Abroad) -> str:
    (child,) = [each for each in office.runs() if each.startswith("sub-")]
    return child


def test_the_answer_and_what_was_made_are_the_result(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent, boss("stream it"))
    run = office.submit(agent="boss")
    office.work(bells=1)
    assert office.record(run).waiting == "tasks"
    office.work()
    (result,) = office.tool_results()
    assert (result["agent_id"], result["status"], result["steps"]) == ("clerk", "completed", 1)
    assert result["response"] == "One, two, three.\n\nSum: 6."
    assert [each["name"] for each in result["output"]["artifacts"]] == ["count", "sum"]
    assert office.ended(run)[0] == "natural_end"
    assert office.ended(child_of(office))[0] == "natural_end"
    seen = [event["event"] for event in office.events(run) if event["type"] == "child_event"]
    assert "".join(event.get("delta", "") for event in seen) == "One, two, three.\n\nSum: 6."


def test_the_tool_says_what_the_agent_is_for(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent, boss("stream it"))
    plan: Any = office.app.registry.plan("boss")
    assert plan.specs[0].description.endswith("Obeys.")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("fail at this", "clerk failed: remote_failed: The ink ran dry."),
        ("reject this", "clerk failed: remote_rejected: I do not do that."),
        ("give_up on it", "clerk cancelled: remote_canceled: Somebody here stopped it."),
    ],
)
def test_an_agent_that_fails_is_an_error_the_model_reads(agent: RemoteAgent, hire: Hire, words: str, told: str) -> None:
    office = hire(agent, boss(words))
    run = office.submit(agent="boss")
    office.work()
    assert office.words()[-2] == ("tool", told)
    assert office.ended(run)[0] == "natural_end"


def test_what_the_agent_asks_is_shown_at_the_parent_and_answered_at_the_child(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent, boss("input please"))
    run = office.submit(agent="boss")
    office.work()
    events = [event for event in office.events(run) if event["type"] == "child_event"]
    (asked,) = [event for event in events if event["event"]["type"] == "run_waiting"]
    assert (asked["agent"], asked["event"]["reason"], asked["event"]["message"]) == ("clerk", "input", "Which colour?")
    office.dispatcher.send(asked["child_thread_id"], "auth first")
    office.work()
    asked = [event for event in office.events(run) if event["type"] == "child_event"][-1]
    (ticket,) = asked["event"]["tickets"]
    office.dispatcher.decide(asked["child_run_id"], ticket["id"], "allow_once")
    office.work()
    assert office.tool_results()[0]["response"] == "You may pass."
    assert office.ended(run)[0] == "natural_end"


def test_a_cancel_of_the_parent_reaches_the_task(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent, boss("input please"))
    run = office.submit(agent="boss")
    office.work()
    child = child_of(office)
    office.dispatcher.cancel(run)
    office.sweep()
    office.work()
    assert office.ended(run)[:2] == ("cancelled", "cancelled")
    assert office.ended(child)[:2] == ("cancelled", "parent_ended")
    assert agent.agent.cancelled == [agent.agent.heard[0]["task"]]


@pytest.mark.parametrize("point", POINTS)
def test_whoever_dies_the_agent_is_asked_once(agent: RemoteAgent, hire: Hire, point: str) -> None:
    nth = 1
    while True:
        office = hire(agent, boss("complete this"))
        run = office.submit(agent="boss")
        deaths = office.work(point, nth)
        assert office.ended(run)[0] == "natural_end"
        assert office.tool_results()[0]["response"] == "It is done."
        assert len([each for each in agent.agent.heard if each["context"] == child_of(office)]) == 1
        if not deaths:
            break
        nth += 1


def test_a_remote_agent_may_be_a_background_task(agent: RemoteAgent, hire: Hire) -> None:
    script: list[Any] = [
        calling("spawn_task", agent="clerk", prompt="complete this", name="it"),
        "Begun.",
        "Done.",
        "Done.",
    ]
    chief = Agent("boss", model=ScriptedModel(script), delegates=["clerk"], tools=["spawn_task"])
    office = hire(agent, chief)
    run = office.submit(agent="boss")
    office.work()
    assert office.ended(run)[0] == "natural_end"
    assert any("It is done." in words for _, words in office.words())


def test_an_agent_that_takes_over_hears_what_was_asked(agent: RemoteAgent, hire: Hire) -> None:
    from postroom.worker import Handoff, tool

    @tool
    def transfer() -> Handoff:
        """Hands over."""
        return Handoff("clerk")

    first = Agent("desk", model=ScriptedModel([calling("transfer")]), tools=[transfer])
    office = hire(agent, first)
    run = office.submit("complete this", agent="desk")
    office.work()
    assert office.ended(run)[0] == "natural_end"
    assert agent.words == ["complete this"]
    assert office.words()[-1] == ("assistant", "It is done.")

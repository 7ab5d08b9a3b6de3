"""Workers die and runs are stopped at any moment: the remote agent is asked once, and hears of it when nobody waits."""

from typing import Any

import pytest

from postroom.mailbox import ops, watch
from tests.worker.fleet import LONG
from tests.worker.loop.office import POINTS
from tests.worker.remote.abroad import Abroad
from tests.worker.remote.agent import RemoteAgent, refusing
from tests.worker.remote.conftest import WAYS, Hire, way


def _to_the_end(office: Abroad, run: str, die_at: str = "", nth: int = 1) -> int:
    """Serves the run until it is done, with an answer to whatever is asked; how often a worker died."""
    deaths = 0
    while (record := office.record(run)).status != "done":
        if record.waiting == "input":
            office.dispatcher.send(office.thread, "auth first", mail_id=f"{run}-answer")
        for call in office.dispatcher.calls(run):
            if call.ticket_status == "open":
                office.dispatcher.decide(run, call.call_id, "allow_once")
        deaths += office.serve(run, die_at if not deaths else "", nth)
    return deaths


@pytest.mark.parametrize("remote", WAYS if LONG else [WAYS[0], WAYS[-1]], indirect=True, ids=way)
@pytest.mark.parametrize("point", POINTS)
def test_a_death_changes_nothing_and_the_agent_is_asked_once(remote: RemoteAgent, hire: Hire, point: str) -> None:
    nth = 1
    while True:
        office = hire(remote)
        run = office.submit("input please")
        deaths = _to_the_end(office, run, point, nth)
        heard = [each for each in remote.agent.heard if each["context"] == office.thread]
        assert [each["words"] for each in heard] == ["input please", "auth first", "It is granted."]
        assert len({each["task"] for each in heard}) == 1
        assert office.ended(run)[0] == "natural_end"
        assert [words for role, words in office.words() if role == "assistant"] == [
            "Which colour?", "Show me your pass.", "You may pass."
        ]  # fmt: skip
        assert office.told(run) == "You may pass."
        if not deaths:
            break
        nth += 1
    assert (nth > 1) == (point in office.points)


def test_an_agent_that_does_not_say_what_it_has_heard_is_asked_again(agent: RemoteAgent, hire: Hire) -> None:
    agent.answers["/tasks"] = refusing(501)
    office = hire(agent)
    run = office.submit("complete this")
    assert office.serve(run, "after_model")
    office.serve(run)
    assert office.ended(run)[0] == "natural_end"
    assert {each["id"] for each in agent.agent.heard} == {f"{run}.1"}, "by the id it can tell that it is the same"
    assert len(agent.words) == 2


@pytest.mark.parametrize("words", ["input please", "auth first"])
def test_a_cancel_of_a_run_that_waits_reaches_the_task(agent: RemoteAgent, hire: Hire, words: str) -> None:
    office = hire(agent)
    run = office.submit(words)
    office.work()
    task = agent.agent.heard[-1]["task"]
    assert office.dispatcher.cancel(run).outcome == "requested"
    assert office.record(run).status == "queued"
    office.work()
    assert office.ended(run)[:2] == ("cancelled", "cancelled")
    assert agent.agent.cancelled == [task]
    again = office.submit("complete this")
    office.work()
    assert office.ended(again)[0] == "natural_end"
    assert agent.agent.heard[-1]["task"] != task


def test_an_interrupt_ends_the_task_before_the_next_run_begins(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent)
    first = office.submit("input please")
    office.work()
    second = office.submit("complete this", on_busy="interrupt")
    office.work()
    assert office.ended(first)[:2] == ("cancelled", "interrupted")
    assert office.ended(second)[0] == "natural_end"
    assert agent.agent.cancelled == [agent.agent.heard[0]["task"]]
    assert agent.agent.heard[0]["task"] != agent.agent.heard[1]["task"]


def test_a_deadline_ends_the_task_of_a_run_that_waits(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent)
    run = office.submit("input please", timeout_ms=60_000)
    office.work()
    late = office.record(run).deadline + 1
    ops.run(office.dispatcher.client, watch.reclaim(office.thread, 5, now=late))
    office.dispatcher.client.hset(f"postroom:{{{office.thread}}}:run:{run}", "deadline", "1")
    office.work()
    assert office.ended(run)[:2] == ("stopped", "deadline")
    assert agent.agent.cancelled == [agent.agent.heard[0]["task"]]


@pytest.mark.parametrize("point", ["claimed", "before_commit"])
def test_a_cancelled_run_whose_worker_dies_is_stopped_by_the_next_one(
    agent: RemoteAgent, hire: Hire, point: str
) -> None:
    office = hire(agent)
    run = office.submit("input please")
    office.work()
    office.dispatcher.cancel(run)
    office.work(die_at=point)
    assert office.ended(run)[:2] == ("cancelled", "cancelled")
    assert agent.agent.cancelled == [agent.agent.heard[0]["task"]]


def test_a_cancel_between_the_asking_and_its_note_finds_the_task(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent)
    run = office.submit("hold on")
    assert office.serve(run, "after_model")
    assert office.dispatcher.cancel(run).outcome == "requested"
    office.serve(run)
    assert office.ended(run)[:2] == ("cancelled", "cancelled")
    assert agent.agent.cancelled == [agent.agent.heard[0]["task"]]


def test_a_run_ends_though_the_agent_cannot_be_told(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent)
    run = office.submit("input please")
    office.work()
    agent.answers[":cancel"] = refusing(400)
    office.dispatcher.cancel(run)
    office.work()
    assert office.ended(run)[:2] == ("cancelled", "cancelled")


def test_a_task_that_is_forgotten_begins_anew_with_newer_words(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent)
    office.run("input please")
    with RemoteAgent() as other:
        # The same address as far as the thread knows, and nothing that anybody remembers there.
        agent.agent.heard.clear()
        forgetful: Any = office.app.registry.plan("clerk")
        forgetful.peer._card = forgetful.peer._card.model_copy(update={"url": other.url})
        run = office.run("complete this")
        assert office.ended(run)[0] == "natural_end"
        assert other.words == ["complete this"]


def test_a_fork_begins_a_task_of_its_own(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent)
    office.run("input please")
    fork = office.dispatcher.fork(office.thread).thread_id
    run = office.submit("complete this", thread=fork)
    office.serve(run, thread=fork)
    assert office.ended(run)[0] == "natural_end"
    first, second = agent.agent.heard
    assert (first["task"] != second["task"], second["context"]) == (True, fork)

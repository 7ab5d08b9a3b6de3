"""Every state a task of a real A2A server can be in, and what that means for the run."""

import asyncio

import pytest

from tests.waiting import until
from tests.worker.remote.agent import RemoteAgent
from tests.worker.remote.conftest import Hire


@pytest.mark.parametrize(
    ("words", "ended", "said"),
    [
        ("complete this", ("natural_end", None, None), "It is done."),
        ("chat with me", ("natural_end", None, None), "Just words."),
        ("fail at this", ("error", "remote_failed", "The ink ran dry."), "The ink ran dry."),
        ("reject this", ("error", "remote_rejected", "I do not do that."), "I do not do that."),
        ("give_up on it", ("cancelled", "remote_canceled", "Somebody here stopped it."), "Somebody here stopped it."),
        ("stream it", ("natural_end", None, None), "One, two, three.\n\nSum: 6."),
        ("replace it", ("natural_end", None, None), "Right."),
    ],
)
def test_an_end(remote: RemoteAgent, hire: Hire, words: str, ended: tuple[str, ...], said: str) -> None:
    office = hire(remote)
    run = office.run(words)
    assert office.ended(run) == ended
    assert office.words() == [("user", words), ("assistant", said)]
    assert office.told(run) == said
    types = office.types(run)
    assert [kind for kind in types if kind in ("run_start", "step_start", "inference_complete", "step_end")] == [
        "run_start", "step_start", "inference_complete", "step_end"
    ]  # fmt: skip
    (heard,) = [each for each in remote.agent.heard if each["context"] == office.thread]
    assert (heard["id"], heard["words"]) == (f"{run}.1", words)
    assert remote.versions <= {"1.0"}


def test_what_was_made_is_kept(remote: RemoteAgent, hire: Hire) -> None:
    office = hire(remote)
    run = office.run("stream it")
    count, total = office.finish(run)["result"]["output"]["artifacts"]
    assert (count["name"], total["name"]) == ("count", "sum")
    assert "".join(part["text"] for part in count["parts"]) == "One, two, three."
    assert total["parts"][0]["data"] == {"sum": 6}
    assert office.log()[-1]["metadata"]["artifacts"] == [count, total]


def test_a_task_that_takes_its_time_is_watched(remote: RemoteAgent, hire: Hire) -> None:
    office = hire(remote)
    remote.agent.go.clear()
    office.look = lambda point: remote.agent.go.set() if point == "after_commit" else None
    run = office.run("hold on")
    assert office.ended(run)[0] == "natural_end"
    states = [event["content"]["state"] for event in office.events(run) if event["type"] == "activity_snapshot"]
    assert states[0] == "TASK_STATE_SUBMITTED"


def test_words_come_with_the_stream_and_nobody_looks(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent)
    run = office.submit("hold on")

    def working() -> bool:
        return any(event.get("content", {}).get("state") == "TASK_STATE_WORKING" for event in office.events(run))

    async def release(desk: object) -> None:
        await asyncio.to_thread(until, working, 10, "the stream has begun")
        agent.agent.go.set()

    office.serve(run, beside=release)
    assert office.ended(run)[0] == "natural_end"
    assert agent.requests[-1] == "/tasks/…:subscribe"
    assert "/tasks/…" not in agent.requests


def test_input_required_waits_without_a_worker_and_goes_on_with_the_same_task(remote: RemoteAgent, hire: Hire) -> None:
    office = hire(remote)
    run = office.run("input please")
    record = office.record(run)
    assert (record.status, record.waiting, record.worker) == ("waiting", "input", None)
    assert office.dispatcher.holder(office.thread) is None
    assert office.finish(run)["message"] == "Which colour?"
    office.dispatcher.send(office.thread, "red")
    office.serve(run)
    assert office.ended(run)[0] == "natural_end"
    assert [words for _, words in office.words()] == ["input please", "Which colour?", "red", "It is red."]
    first, second = [each for each in remote.agent.heard if each["context"] == office.thread]
    assert first["task"] == second["task"]
    assert second["words"] == "red"


def test_newer_words_go_on_with_the_task_that_waited(remote: RemoteAgent, hire: Hire) -> None:
    office = hire(remote)
    waiting = office.run("input please")
    run = office.run("red")
    assert office.ended(waiting) == ("cancelled", "superseded", None)
    assert office.ended(run)[0] == "natural_end"
    first, second = [each for each in remote.agent.heard if each["context"] == office.thread]
    assert (first["task"], second["id"]) == (second["task"], f"{run}.1")


@pytest.mark.parametrize(
    ("decision", "result", "heard", "said"),
    [
        ("allow_once", None, "It is granted.", "You may pass."),
        ("answer", "pass-7", "pass-7", "Pass 7 it is."),
        ("deny", None, "The call was denied.", "Then not."),
    ],
)
def test_auth_required_is_a_ticket(
    remote: RemoteAgent, hire: Hire, decision: str, result: str | None, heard: str, said: str
) -> None:
    office = hire(remote)
    run = office.run("auth first")
    record = office.record(run)
    assert (record.status, record.waiting) == ("waiting", "approval")
    (ticket,) = office.finish(run)["tickets"]
    assert ticket["message"] == "Show me your pass."
    office.dispatcher.decide(run, ticket["call_id"], decision, result=result)
    office.serve(run)
    assert office.ended(run)[0] == "natural_end"
    assert office.words()[-1] == ("assistant", said)
    first, second = [each for each in remote.agent.heard if each["context"] == office.thread]
    assert (first["task"], second["words"]) == (second["task"], heard)


def test_a_person_may_stop_what_wants_to_be_authorised(remote: RemoteAgent, hire: Hire) -> None:
    office = hire(remote)
    run = office.run("auth first")
    office.dispatcher.decide(run, office.finish(run)["tickets"][0]["call_id"], "deny_and_stop")
    office.serve(run)
    assert office.ended(run)[:2] == ("stopped", "denied")
    assert remote.agent.heard[-1]["task"] in remote.agent.cancelled


def test_a_thread_is_one_conversation(remote: RemoteAgent, hire: Hire) -> None:
    office = hire(remote)
    for words in ("complete one", "complete two"):
        assert office.ended(office.run(words))[0] == "natural_end"
    first, second = [each for each in remote.agent.heard if each["context"] == office.thread]
    assert first["task"] != second["task"]
    assert second["words"] == "complete two"


def test_mail_that_comes_meanwhile_is_the_next_step(remote: RemoteAgent, hire: Hire) -> None:
    office = hire(remote)
    sent: list[object] = []

    def mail(point: str) -> None:
        if point == "after_model" and not sent:
            sent.append(office.dispatcher.send(office.thread, "complete that, too"))

    office.look = mail
    run = office.run("complete this")
    assert office.ended(run)[0] == "natural_end"
    assert [words for _, words in office.words()] == [
        "complete this", "It is done.", "complete that, too", "It is done."
    ]  # fmt: skip
    assert office.record(run).step == 2


def test_cancel_reaches_the_task(remote: RemoteAgent, hire: Hire) -> None:
    office = hire(remote)
    remote.agent.go.clear()
    run = office.submit("hold on")

    async def cancel(desk: object) -> None:
        asked = asyncio.Event()
        office.look = lambda point: asked.set() if point == "after_model" else None
        await asked.wait()
        office.dispatcher.cancel(run)
        office.desk.active[run].request_cancel("cancelled")

    office.serve(run, beside=cancel)
    assert office.ended(run)[:2] == ("cancelled", "cancelled")
    assert remote.agent.cancelled[-1] == remote.agent.heard[-1]["task"]
    remote.agent.go.set()
    assert office.ended(office.run("complete this"))[0] == "natural_end"


def test_a_task_that_takes_too_long_is_given_up(remote: RemoteAgent, hire: Hire) -> None:
    office = hire(remote, timeout_s=1.0)
    remote.agent.go.clear()
    run = office.run("hold on")
    assert office.ended(run) == ("stopped", "timeout", "clerk was not done after 1 s")
    assert remote.agent.cancelled[-1] == remote.agent.heard[-1]["task"]

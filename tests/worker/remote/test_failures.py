"""What goes wrong between a run and the remote agent that serves it."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from postroom.worker import A2A, Agent, App
from postroom.worker.remote import peer
from tests.worker.loop.office import Plain
from tests.worker.remote.abroad import Abroad
from tests.worker.remote.agent import RemoteAgent, refusing
from tests.worker.remote.conftest import Hire


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        ("/message:send", refusing(401), "agent clerk: the provider refused the request without a key (HTTP 401)"),
        ("/message:send", refusing(400, error={"message": "no such verb"}), "agent clerk: no such verb (HTTP 400)"),
        ("/agent-card.json", refusing(404), "agent clerk: the provider gave no reason (HTTP 404)"),
        ("/agent-card.json", lambda: PlainTextResponse("<html>"), "is not JSON; check the address"),
    ],
)
def test_what_will_fail_again_ends_the_run_in_one_line(
    agent: RemoteAgent, hire: Hire, path: str, answer: Callable[[], Response], words: str
) -> None:
    agent.answers[path] = answer
    office = hire(agent)
    run = office.run("complete this")
    kind, _, told = office.ended(run)
    assert kind == "error"
    assert words in (told or "")
    assert "\n" not in (told or "")


def _once(answer: Callable[[], Response], agent: RemoteAgent, path: str) -> Callable[[], Response]:
    def fail() -> Response:
        del agent.answers[path]
        return answer()

    return fail


PASSING = [refusing(503), refusing(429)]
ODD = [
    lambda: PlainTextResponse("{"),
    lambda: PlainTextResponse("[" * 100_000),
    refusing(200, task={"id": 5}),
    refusing(200, task={"id": "t", "status": {}, "artifacts": [{"artifactId": "a", "parts": ["words"]}]}),
    refusing(200, x=1),
]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        *(("/agent-card.json", answer) for answer in PASSING),
        *((path, answer) for path in ("/message:send", ":subscribe") for answer in (*PASSING, *ODD)),
    ],
)
def test_what_passes_is_tried_again(agent: RemoteAgent, hire: Hire, path: str, answer: Callable[[], Response]) -> None:
    agent.answers[path] = _once(answer, agent, path)
    office = hire(agent)
    run = office.run("stream it")
    assert office.ended(run)[0] == "natural_end"
    assert agent.words == ["stream it"]


@pytest.mark.parametrize("status", [404, 405, 501])
def test_without_a_stream_the_task_is_looked_at(agent: RemoteAgent, hire: Hire, status: int) -> None:
    agent.answers[":subscribe"] = refusing(status)
    office = hire(agent)
    run = office.run("stream it")
    assert office.ended(run)[0] == "natural_end"
    assert office.words()[-1][1] == "One, two, three.\n\nSum: 6."


def test_words_that_come_with_the_first_answer_are_told_once(agent: RemoteAgent, hire: Hire) -> None:
    def task(state: str, words: str) -> Plain:
        made = [{"artifactId": "a", "parts": [{"text": words}]}]
        return {"id": "t1", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}, "artifacts": made}

    agent.answers = {
        "/message:send": refusing(200, task=task("WORKING", "One,")),
        ":subscribe": refusing(501),
        "/tasks/t1": refusing(200, **task("COMPLETED", "One, two.")),
    }
    office = hire(agent)
    run = office.run("count")
    assert office.ended(run)[0] == "natural_end"
    assert office.told(run) == office.words()[-1][1] == "One, two."


def test_half_a_character_spoils_nothing(agent: RemoteAgent, hire: Hire) -> None:
    made = '[{"artifactId": "a", "parts": [{"text": "An emoji: \\ud83d"}]}]'
    told = f'{{"task": {{"id": "t1", "status": {{"state": "TASK_STATE_COMPLETED"}}, "artifacts": {made}}}}}'
    agent.answers["/message:send"] = lambda: PlainTextResponse(told)
    office = hire(agent)
    run = office.run("complete this")
    assert office.ended(run)[0] == "natural_end"
    assert office.words()[-1][1] == "An emoji: ?"


def test_a_stream_without_end_is_given_up(agent: RemoteAgent, hire: Hire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "MOST_BYTES", 100_000)
    more = 'data: {"artifactUpdate": {"artifact": {"artifactId": "a", "parts": [{"text": "more"}]}}}\n\n'
    agent.answers[":subscribe"] = lambda: StreamingResponse(itertools.repeat(more), media_type="text/event-stream")
    office = hire(agent, timeout_s=10)
    run = office.submit("hold on")
    agent.agent.go.set()
    office.serve(run)
    assert office.ended(run)[0] == "natural_end"
    assert office.words()[-1][1] == "It is done."


def test_nobody_there_is_tried_again_later_and_then_given_up(server_url: str) -> None:
    app = App([Agent("clerk", backend=A2A("http://127.0.0.1:1"))])
    with Abroad(server_url, app, max_attempts=2) as office:
        run = office.submit("complete this")
        office.serve(run)
        assert office.record(run).status == "queued"
        office.skip_to_start(run)
        office.serve(run)
        kind, code, words = office.ended(run)
        assert (kind, code) == ("error", "attempts_exhausted")
        assert "agent clerk: the provider cannot be reached" in (words or "")


def test_a_token_that_is_not_there_is_named(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent, auth_env="A2A_NOT_SET")
    run = office.run("complete this")
    assert office.ended(run) == (
        "error",
        "remote_refused",
        "agent clerk: no key; set A2A_NOT_SET in the environment of the worker",
    )


def test_a_token_is_not_repeated(agent: RemoteAgent, hire: Hire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_CLERK", "secret-4711")
    agent.answers["/message:send"] = refusing(400, error={"message": "what is secret-4711?"})
    office = hire(agent, auth_env="A2A_CLERK")
    run = office.run("complete this")
    assert office.ended(run)[2] == "agent clerk: what is …? (HTTP 400)"
    assert agent.keys[-1] == "Bearer secret-4711"


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"overrides": {"model": "m"}}, "backend does not support: overrides"),
        ({"frontend_tools": [{"name": "show"}]}, "backend does not support: frontend_tools"),
        (
            {"overrides": {"temperature": 0}, "frontend_tools": [{"name": "show"}]},
            "backend does not support: overrides, frontend_tools",
        ),
    ],
)
def test_what_a_remote_agent_cannot_do_is_refused_before_it_is_asked(
    agent: RemoteAgent, hire: Hire, about: Plain, words: str
) -> None:
    office = hire(agent)
    run = office.run("complete this", **about)
    assert office.ended(run) == ("error", "capability_mismatch", words)
    assert agent.requests == []


def test_a_run_without_words_is_refused(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent)
    run = office.dispatcher.submit("clerk", (), thread=office.thread, queue=office.thread).run_id
    office.serve(run)
    assert office.ended(run)[1] == "nothing_to_say"


def test_everything_somebody_shows_is_passed_on(agent: RemoteAgent, hire: Hire) -> None:
    from postroom.mailbox.contracts import Message, parse

    content: list[Any] = [
        {"type": "text", "text": "complete this"},
        {"type": "image", "source": {"kind": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "document", "source": {"kind": "url", "url": "http://x/y.pdf"}, "title": "y"},
    ]
    office = hire(agent)
    words = (
        parse(Message, {"role": "user", "content": content}),
        parse(Message, {"role": "user", "content": [{"type": "text", "text": "hush"}], "visibility": "internal"}),
    )
    run = office.dispatcher.submit("clerk", words, thread=office.thread, queue=office.thread).run_id
    office.serve(run)
    assert office.ended(run)[0] == "natural_end"
    assert (agent.words, agent.agent.heard[0]["parts"]) == (["complete this"], 3)


def test_what_was_discovered_is_not_asked_for_again(agent: RemoteAgent, hire: Hire) -> None:
    office = hire(agent)
    for _ in range(2):
        office.run("complete this")
    assert agent.requests.count("/.well-known/agent-card.json") == 1


def test_a_remote_run_is_not_replayed(agent: RemoteAgent, hire: Hire) -> None:
    import asyncio

    from postroom.mailbox.errors import InvalidInput
    from postroom.worker.replay import replay

    office = hire(agent)
    run = office.run("complete this")
    with pytest.raises(InvalidInput, match="remote agent"):
        asyncio.run(replay(office.url, office.settings, office.app, run))

"""What is decided purely: how tasks are read, how verbs are written, what a backend can do."""

from typing import Any

import pytest

from postroom.mailbox.backends import Card
from postroom.worker.core.capabilities import LOCAL, REMOTE, Profile, lacking
from postroom.worker.remote.binding import CANCEL, GET, LIST, SEND, SUBSCRIBE, Ask
from postroom.worker.remote.http_json import PATHS, HttpJson
from postroom.worker.remote.json_rpc import METHODS, JsonRpc
from postroom.worker.remote.tasks import ENDS, WAITS, Task, fold, read_reply, read_task

CARD = Card(name="a", url="http://h/base/", binding="HTTP+JSON", tenant="ann b")
STATES = [
    f"TASK_STATE_{each}"
    for each in (
        "SUBMITTED", "WORKING", "COMPLETED", "FAILED", "CANCELED", "REJECTED", "INPUT_REQUIRED", "AUTH_REQUIRED"
    )
]  # fmt: skip


def test_every_state_is_work_an_end_or_a_wait() -> None:
    settled = {state for state in STATES if Task("t", "c", state).settled}
    assert settled == {*ENDS, *WAITS}
    assert set(STATES) - settled == {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}
    assert not Task("t", "c", "TASK_STATE_FROM_THE_FUTURE").settled


@pytest.mark.parametrize("verb", [SEND, GET, LIST, SUBSCRIBE, CANCEL])
def test_both_bindings_have_every_verb(verb: str) -> None:
    assert verb in PATHS
    assert verb in METHODS


def test_verbs_as_paths() -> None:
    assert HttpJson().ask(CARD, GET, {"id": "a/b?c"}) == Ask("GET", "http://h/base/ann%20b/tasks/a%2Fb%3Fc")
    assert HttpJson().ask(CARD, LIST, {"contextId": "x y"}) == Ask("GET", "http://h/base/ann%20b/tasks?contextId=x+y")
    assert HttpJson().ask(CARD, CANCEL, {"id": "t"}) == Ask("POST", "http://h/base/ann%20b/tasks/t:cancel", {})
    sent = HttpJson().ask(CARD, SEND, {"message": {}})
    assert sent == Ask("POST", "http://h/base/ann%20b/message:send", {"message": {}})


def test_verbs_as_methods() -> None:
    asked = JsonRpc().ask(CARD, GET, {"id": "t"})
    assert (asked.method, asked.url) == ("POST", "http://h/base/")
    assert asked.body == {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t", "tenant": "ann b"}}


@pytest.mark.parametrize(
    ("binding", "status", "body", "refused"),
    [
        (HttpJson(), 200, {"task": {}}, None),
        (HttpJson(), 404, {}, (404, True)),
        (HttpJson(), 401, "no", (401, False)),
        (HttpJson(), 400, {"error": {"details": [{"reason": "UNSUPPORTED_OPERATION"}]}}, (400, True)),
        (HttpJson(), 200, {"error": {"code": 503}}, (503, False)),
        (HttpJson(), 200, {"error": {}}, (500, False)),
        (JsonRpc(), 200, {"result": {}}, None),
        (JsonRpc(), 200, {"error": {"code": -32001}}, (404, False)),
        (JsonRpc(), 200, {"error": {"code": -32601}}, (501, True)),
        (JsonRpc(), 200, {"error": {"code": -32004}}, (400, True)),
        (JsonRpc(), 200, {"error": {"code": -32603}}, (500, False)),
        (JsonRpc(), 200, {"error": "odd"}, (500, False)),
        (JsonRpc(), 405, "", (405, True)),
    ],
)
def test_refusals(binding: Any, status: int, body: Any, refused: tuple[int, bool] | None) -> None:
    found = binding.refused(status, body)
    assert (found and (found.status, found.lacks)) == refused


def _status(state: str, words: str = "") -> Any:
    told = {"message": {"parts": [{"text": words}]}} if words else {}
    return {"statusUpdate": {"status": {"state": f"TASK_STATE_{state}", **told}}}


def _made(words: str, name: str = "a", append: bool = False) -> Any:
    return {"artifactUpdate": {"artifact": {"artifactId": name, "parts": [{"text": words}]}, "append": append}}


def test_words_grow_with_the_stream() -> None:
    task, seen = Task("t", "c", "TASK_STATE_SUBMITTED"), []
    made = (_made("A"), _made("B", append=True), _made("C", "b"))
    stream: tuple[Any, ...] = (_status("WORKING", "hm"), *made, _status("COMPLETED", "D"), {"news": {}})
    for event in stream:
        task = fold(task, event)
        seen.append(task.words)
    assert seen == ["", "A", "AB", "AB\n\nC", "AB\n\nC\n\nD", "AB\n\nC\n\nD"]
    assert [len(made.parts) for made in task.artifacts] == [1, 1], "many pieces of one text are one"
    assert fold(task, _made("Z")).words.startswith("Z"), "what is made anew takes the place of the old"


def test_an_agent_that_only_talks_is_heard() -> None:
    said = {"role": "ROLE_AGENT", "messageId": "2", "parts": [{"text": "Hello."}]}
    status = {"state": "TASK_STATE_COMPLETED"}
    task = read_task({"id": "t", "contextId": "c", "status": status, "history": [{"messageId": "1"}, said]})
    assert (task.words, task.heard) == ("Hello.", frozenset({"1", "2"}))


@pytest.mark.parametrize("odd", [{}, {"task": {}}, {"task": {"id": 5, "status": {}}}, {"message": {}}, {"task": None}])
def test_what_has_another_shape_is_not_taken_for_an_answer(odd: Any) -> None:
    with pytest.raises((KeyError, TypeError, AttributeError)):
        read_reply(odd)


def test_a_backend_is_asked_for_what_it_has() -> None:
    everything = {"overrides": {"model": "m"}, "frontend_tools": [{}], "decisions": [{}]}
    assert lacking(LOCAL, everything) == []
    assert lacking(REMOTE, everything) == ["decisions", "overrides", "frontend_tools"]
    assert lacking(REMOTE, {"messages": ["hello"]}) == []
    assert Profile().waits == "none", "of a backend nobody knows nothing is expected"

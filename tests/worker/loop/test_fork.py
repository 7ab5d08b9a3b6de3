"""Forks: a new thread from any point of another, and runs that go on from there."""

import json
from typing import Any

import pytest

from postroom.mailbox import grants, keys, ops
from postroom.mailbox.errors import InvalidInput, ThreadNotFound
from postroom.worker.app import Agent, App
from postroom.worker.cli import main
from postroom.worker.core.state import Scope, StateKey
from postroom.worker.model.base import Request
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.plugins.base import Plugin, Registrar
from postroom.worker.tools import Approval, Output, ToolContext, tool
from tests.worker.loop.office import Office, text, valid

COUNT: StateKey[int, int] = StateKey("count", 0, lambda old, more: old + more, Scope.THREAD)
DRAFT: StateKey[str, str] = StateKey("draft", "")


class Counting(Plugin):
    """Keeps a number on the thread and a word in the run."""

    id = "counting"

    def register(self, registrar: Registrar) -> None:
        registrar.key(COUNT, DRAFT)


@tool
def count(ctx: ToolContext) -> Output:
    """Counts."""
    number = ctx.state[COUNT] + 1
    return Output(number, updates=[COUNT.update(1), DRAFT.update(f"draft {number}")])


@tool(needs_approval=lambda _: Approval("Pay?", action_key="pay"))
def pay() -> str:
    """Pays."""
    return "paid"


def _counts(request: Request) -> Any:
    """Counts twice in every run, then says how many answers it can see."""
    asked = max(place for place, each in enumerate(request.messages) if each["role"] == "user")
    if len([each for each in request.messages[asked:] if each["role"] == "assistant"]) < 2:
        words = text(request.messages[asked])
        return {"say": "Counting.", "calls": [{"name": "pay" if words == "pay" else "count"}]}
    return f"seen {sum(1 for each in request.messages if each['role'] == 'assistant')}"


@pytest.fixture
def office(server_url: str) -> Any:
    model = ScriptedModel(_counts)
    app = App([Agent("clerk", model=model, tools=[count, pay], plugins=[Counting()])])
    with Office(server_url, app) as office:
        yield office


def _state(office: Office, thread: str) -> dict[str, int]:
    client: Any = office.dispatcher.client
    stored = client.hgetall(keys.thread_state(thread))
    return {name.decode(): value[-1] for name, value in stored.items()}


def test_a_fork_goes_on_from_a_step(office: Office) -> None:
    first = office.run("one")
    second = office.run("two")
    before = office.dispatcher.messages(office.thread, raw=True)
    done = office.dispatcher.fork(office.thread, run=second, step=1)
    assert (done.outcome, done.parent, done.state, done.agent) == ("forked", office.thread, "snapshot", "clerk")
    # The first run has a question, two calls with their results and an answer; then question, call and result.
    assert (done.at, done.messages) == (9, 9)
    assert [text(each) for each in office.log(done.thread_id)][-2:] == ["Counting.", "3"]
    valid(office.log(done.thread_id))
    assert _state(office, done.thread_id) == {"count": 3}
    assert _state(office, office.thread) == {"count": 4}
    record = office.dispatcher.get_thread(done.thread_id)
    assert (record.parent, record.forked_at, record.open) == (office.thread, 9, None)
    run = office.dispatcher.submit(None, "three", thread=done.thread_id, queue=office.thread).run_id
    office.serve(run, thread=done.thread_id)
    assert [text(each) for each in office.log(done.thread_id)][-1] == "seen 6"
    assert _state(office, done.thread_id) == {"count": 5}
    assert office.dispatcher.messages(office.thread, raw=True) == before
    office.dispatcher.delete_thread(done.thread_id)
    assert office.record(first).status == "done", "what the other thread has is none of its business"


def test_a_call_is_never_parted_from_its_result(office: Office) -> None:
    office.run("one")
    ends = {}
    for at in range(7):
        done = office.dispatcher.fork(office.thread, at=at)
        valid(office.log(done.thread_id))
        ends[at] = done.at
    assert ends == {0: 0, 1: 1, 2: 1, 3: 3, 4: 3, 5: 5, 6: 6}


def test_a_run_that_waits_is_left_behind(office: Office) -> None:
    office.run("one")
    run = office.run("pay")
    assert office.record(run).status == "waiting"
    done = office.dispatcher.fork(office.thread)
    assert [text(each) for each in office.log(done.thread_id)][-1] == "pay"
    assert office.record(run).status == "waiting"


def test_without_a_journal_the_present_state_is_taken_and_said(office: Office) -> None:
    run = office.run("one")
    assert office.dispatcher.fork(office.thread).state == "present", "all of it is as it is now"
    assert _state(office, office.dispatcher.fork(office.thread, at=3).thread_id) == {"count": 1}
    office.dispatcher.client.delete(keys.events(office.thread, run))
    done = office.dispatcher.fork(office.thread, at=3)
    assert (done.state, _state(office, done.thread_id)) == ("present", {"count": 2})


def test_what_was_allowed_there_is_not_allowed_here(office: Office) -> None:
    run = office.run("pay")
    office.dispatcher.decide(run, office.dispatcher.calls(run)[0].call_id, "allow_always")
    office.serve(run)
    client = office.dispatcher.client
    assert ops.run(client, grants.grants(office.thread))
    assert not ops.run(client, grants.grants(office.dispatcher.fork(office.thread).thread_id))
    assert ops.run(client, grants.grants(office.dispatcher.fork(office.thread, grants=True).thread_id))
    assert not ops.run(client, grants.grants(office.dispatcher.fork(office.thread, at=1, grants=True).thread_id))


def test_what_was_taken_back_later_is_there_again(office: Office) -> None:
    office.run("one")
    seq = office.dispatcher.get_thread(office.thread).seq
    waiting = office.run("pay")
    office.dispatcher.submit("clerk", "never mind", thread=office.thread, queue=office.thread, on_busy="rollback")
    assert "pay" not in [text(each) for each in office.log()]
    now, then = office.dispatcher.fork(office.thread), office.dispatcher.fork(office.thread, at=seq + 1)
    assert "pay" not in [text(each) for each in office.log(now.thread_id)]
    assert [text(each) for each in office.log(then.thread_id)][-1] == "pay"
    assert office.record(waiting).status == "done"


def test_the_same_fork_again_is_one(office: Office) -> None:
    office.run("one")
    name = f"{office.thread}-fork"
    assert office.dispatcher.fork(office.thread, at=3, to=name).outcome == "forked"
    assert office.dispatcher.fork(office.thread, at=3, to=name).outcome == "again"
    with pytest.raises(InvalidInput, match="exists already"):
        office.dispatcher.fork(office.thread, at=5, to=name)
    with pytest.raises(InvalidInput, match="exists already"):
        office.dispatcher.fork(name, to=office.thread)


def test_a_fork_nobody_uses_goes_away(office: Office) -> None:
    office.run("one")
    name = office.dispatcher.fork(office.thread).thread_id
    client: Any = office.dispatcher.client
    places = (keys.thread(name), keys.log(name), keys.thread_state(name))
    assert all(0 < client.pttl(key) <= office.settings.thread_retention_ms for key in places)
    office.submit("two", thread=name)
    assert {client.pttl(key) for key in places} == {-1}


def test_mistakes_are_told(office: Office) -> None:
    run = office.run("one")
    with pytest.raises(ThreadNotFound):
        office.dispatcher.fork("no such thread")
    mistakes: list[dict[str, Any]] = [
        {"at": 99},
        {"at": -1},
        {"at": 1, "run": run},
        {"step": 1},
        {"run": "ghost"},
        {"run": run, "step": 0},
    ]
    for wrong in mistakes:
        with pytest.raises(InvalidInput):
            office.dispatcher.fork(office.thread, **wrong)


def test_from_the_command_line(office: Office, capsys: pytest.CaptureFixture[str]) -> None:
    run = office.run("one")
    assert main(["fork", office.thread, "--run", run, "--step", "1", "--json", "--url", office.url]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["at"], done["state"], done["parent"]) == (3, "snapshot", office.thread)
    assert main(["fork", office.thread, "--at", "1", "--to", f"{office.thread}-b", "--url", office.url]) == 0
    assert capsys.readouterr().out.startswith(f"forked {office.thread}-b from {office.thread}: 1 messages up to 1")
    assert main(["fork", office.thread, "--at", "99", "--url", office.url]) == 2
    assert capsys.readouterr().err.count("\n") == 1

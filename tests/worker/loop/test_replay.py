"""A finished run, taken through the loop once more: the same log, and a recording that was tampered with is noticed."""

import asyncio
from typing import Any

import pytest

from postroom.mailbox import codec, keys
from postroom.mailbox.errors import InvalidInput
from postroom.worker.app import App
from postroom.worker.cli import main
from postroom.worker.model.base import Request
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.plan import Plan
from postroom.worker.replay import Report, replay
from tests.worker.loop.office import Office, valid
from tests.worker.replay_app import SCRIPTS, app_of, carried_out


def _office(url: str, kind: str) -> Office:
    return Office(url, app_of(kind))


def _silent(kind: str) -> App:
    """The same app with a model that must not be asked."""

    def refuse(request: Request) -> Exception:
        return AssertionError("a model was asked")

    app = app_of(kind)
    plan = app.registry.plan("clerk")
    assert isinstance(plan, Plan)
    assert isinstance(plan.model, ScriptedModel)
    plan.model.script = refuse
    return app


def _to_the_end(office: Office, run: str, action: str = "allow_once", **more: Any) -> None:
    while (record := office.record(run)).status != "done":
        if record.status == "waiting":
            for call in office.dispatcher.calls(run):
                if call.ticket_status == "open" and call.name == "hurry":
                    office.expire(run)
                elif call.ticket_status == "open":
                    office.dispatcher.decide(run, call.call_id, action, **more)
        office.serve(run)


def _replayed(office: Office, run: str, kind: str) -> Report:
    """The report; whatever the outcome, nothing is carried out and nothing is left behind."""
    before, log = dict(carried_out), office.dispatcher.messages(office.thread, raw=True)
    events, record = office.events(run), office.record(run)
    threads = set(office.dispatcher.client.zrange(keys.THREADS, 0, -1))
    report = asyncio.run(replay(office.url, office.settings, _silent(kind), run))
    assert carried_out == before, "a tool was carried out"
    assert office.dispatcher.messages(office.thread, raw=True) == log
    assert (office.events(run), office.record(run)) == (events, record)
    assert set(office.dispatcher.client.zrange(keys.THREADS, 0, -1)) == threads
    assert not list(office.dispatcher.client.scan_iter("*replay-*"))
    return report


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_run_comes_out_the_same(server_url: str, kind: str) -> None:
    with _office(server_url, kind) as office:
        run = office.submit("hello")
        _to_the_end(office, run, "answer" if kind == "question" else "allow_once", result="yes", by="ann")
        report = _replayed(office, run, kind)
        assert report.differences == []
        assert report.same
        assert (report.notes, report.messages) == ([], len(office.log()))
        assert report.steps == office.record(run).step


@pytest.mark.parametrize("more", [{"reason": "too much"}, {}])
@pytest.mark.parametrize("action", ["deny", "deny_and_stop", "cancel", "allow_always"])
def test_decisions_are_taken_again(server_url: str, action: str, more: dict[str, Any]) -> None:
    with _office(server_url, "approval") as office:
        run = office.submit()
        _to_the_end(office, run, action, **more)
        assert _replayed(office, run, "approval").differences == []


def test_edited_arguments_and_what_was_allowed_before(server_url: str) -> None:
    with _office(server_url, "approval") as office:
        first = office.submit()
        _to_the_end(office, first, "allow_always", arguments={"to": "eve"})
        office.app.registry.plan("clerk").model.script = [*SCRIPTS["approval"], *SCRIPTS["approval"]]  # type: ignore[union-attr]
        second = office.submit("again")
        _to_the_end(office, second)
        assert "run_waiting" not in office.types(second)
        for run in (first, second):
            assert _replayed(office, run, "approval").differences == []


def test_later_runs_begin_where_they_began(server_url: str) -> None:
    with _office(server_url, "words") as office:
        office.app.registry.plan("clerk").model.script = ["One.", "Two.", "Three."]  # type: ignore[union-attr]
        runs = [office.run(f"question {i}") for i in range(3)]
        for run in runs:
            report = _replayed(office, run, "words")
            assert (report.differences, report.messages) == ([], 2)


def test_mail_comes_again_when_it_came(server_url: str) -> None:
    with _office(server_url, "tool") as office:
        run = office.submit()
        plan = office.app.registry.plan("clerk")
        assert isinstance(plan, Plan)
        model = plan.model
        assert isinstance(model, ScriptedModel)
        script = SCRIPTS["tool"]

        def answer(request: Request) -> Any:
            turn = sum(1 for each in request.messages if each["role"] == "assistant")
            if turn == 0:
                office.dispatcher.send(office.thread, "and be quick")
            return script[turn]

        model.script = answer
        office.serve(run)
        assert ("user", "and be quick") in office.words()
        valid(office.log())
        assert _replayed(office, run, "tool").differences == []


def test_without_its_journal_a_run_is_replayed_from_the_log(server_url: str) -> None:
    with _office(server_url, "parallel") as office:
        run = office.run()
        office.dispatcher.client.xtrim(keys.events(office.thread, run), maxlen=1, approximate=False)
        report = asyncio.run(replay(office.url, office.settings, _silent("parallel"), run))
        assert report.differences == []
        assert "the journal is gone or trimmed" in report.notes[0]


def _tamper(office: Office, place: int, change: Any) -> None:
    """Rewrites one entry of the log, as nothing in the product would."""
    client: Any = office.dispatcher.client
    key = keys.log(office.thread)
    entries = client.xrange(key)
    client.delete(key)
    for number, (at, fields) in enumerate(entries):
        kept = change(dict(fields)) if number == place else fields
        if kept is not None:
            client.xadd(key, kept, id=at)


def _other_call(fields: dict[bytes, bytes]) -> dict[bytes, bytes]:
    body = codec.decode(fields[b"body"])
    body["tool_calls"][0]["arguments"] = {"a": 100, "b": 2}
    return {**fields, b"body": codec.encode(body)}


@pytest.mark.parametrize(
    ("place", "change", "words"),
    [
        (0, lambda fields: {**fields, b"text": b"another question"}, "message 1: recorded"),
        (1, _other_call, "the log has the calls"),
        (2, lambda fields: None, "message 3: recorded"),
        (3, lambda fields: {**fields, b"text": b"It is 4."}, "the recording contradicts itself in step 2"),
        (3, lambda fields: {**fields, b"step": b"7"}, "(step 7)"),
        (3, lambda fields: None, "termination: recorded natural_end, replayed error"),
    ],
)
def test_a_tampered_log_is_reported(server_url: str, place: int, change: Any, words: str) -> None:
    with _office(server_url, "tool") as office:
        run = office.run()
        _tamper(office, place, change)
        report = _replayed(office, run, "tool")
        assert not report.same
        assert any(words in line for line in report.differences), report.differences


def test_another_outcome_is_reported(server_url: str) -> None:
    with _office(server_url, "words") as office:
        run = office.run()
        office.dispatcher.client.hset(
            keys.run(office.thread, run), mapping={"termination": "stopped", "code": "timeout"}
        )
        report = _replayed(office, run, "words")
        assert [line.partition(":")[0] for line in report.differences] == ["termination"]


def test_what_cannot_be_replayed_is_refused(server_url: str) -> None:
    with _office(server_url, "approval") as office:
        run = office.run()
        with pytest.raises(InvalidInput, match="only a run that has ended"):
            asyncio.run(replay(office.url, office.settings, office.app, run))
        office.dispatcher.cancel(run)
        with pytest.raises(InvalidInput, match="ended as cancelled"):
            asyncio.run(replay(office.url, office.settings, office.app, run))


def test_from_the_command_line(server_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with _office(server_url, "parallel") as office:
        run = office.run()
        words = ["replay", run, "--app", "tests.worker.replay_app:app", "--url", server_url]
        assert main(words) == 0
        assert capsys.readouterr().out == "same: 6 messages in 2 steps, natural_end\n"
        assert main([*words, "--json"]) == 0
        assert '"same": true' in capsys.readouterr().out
        _tamper(office, 5, lambda fields: {**fields, b"text": b"Not done."})
        assert main(words) == 1
        assert capsys.readouterr().out.startswith(
            "different: 6 messages in 2 steps, natural_end\nthe recording contradicts"
        )
        assert main(["replay", "ghost", *words[2:]]) == 2
        assert main(["replay", run, "--app", "tests.worker.fleet_app:app", "--url", server_url]) == 2
        assert "no agent with a model" in capsys.readouterr().err

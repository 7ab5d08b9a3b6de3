"""The command line: every command answers people and programs, and a mistake is one line and exit code 2."""

import json
import subprocess
import uuid
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from postroom.dispatcher import Dispatcher, RunRequest
from postroom.dispatcher.listings import MOST_PER_PAGE
from postroom.mailbox import commit, keys, lock, ops
from postroom.mailbox.commit import Batch, Owner
from postroom.mailbox.contracts import Termination, message
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.ids import new_id
from postroom.mailbox.lifecycle import TerminationKind, WaitingReason
from postroom.worker.cli import main
from tests.worker.fleet import Server

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def postroom(server_url: str, capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main([words[0], "--url", server_url, *words[1:]])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def answer(postroom: Call) -> Callable[..., Any]:
    """A command's answer as JSON, which must be one value per line."""

    def call(*words: str) -> Any:
        code, out, _ = postroom(*words, "--json")
        assert code == 0, out
        return [json.loads(line) for line in out.splitlines()]

    return call


@pytest.fixture
def thread() -> str:
    return f"desk {uuid.uuid4().hex[:10]}"


def worked(url: str, thread: str, run_id: str, suspend: bool = False) -> None:
    with Dispatcher(url) as client:
        owner = Owner(thread, run_id, ops.run(client.client, lock.claim(thread, run_id, "w", 10_000)).fence)
        batch = (
            Batch(1, step=1).say(message("assistant", "hello").as_dict()).tell({"type": "text_delta", "delta": "hello"})
        )
        if suspend:
            batch.raise_ticket("c1", {"id": "k1", "call_id": "c1", "tool": "pay"})
            ops.run(client.client, commit.suspend(owner, batch, WaitingReason.APPROVAL))
        else:
            how = Termination(kind=TerminationKind.NATURAL_END)
            ops.run(client.client, commit.finish(owner, batch, how))


def test_submit_tail_and_lists(postroom: Call, answer: Any, thread: str, server_url: str) -> None:
    (done,) = answer("submit", "clerk", "hello", "--thread", thread, "--tenant", thread, "--metadata", '{"a": 1}')
    assert done["outcome"] == "queued"
    worked(server_url, thread, done["run_id"])
    code, out, _ = postroom("tail", done["run_id"])
    assert (code, out) == (0, "hello\n· run_finish termination=natural_end\n")
    events = answer("tail", done["run_id"], "--after", "1", "--no-follow")
    assert [event["event"]["type"] for event in events] == ["run_finish"]
    (run,) = answer("runs", "--tenant", thread)
    assert (run["run_id"], run["status"]) == (done["run_id"], "done")
    code, out, _ = postroom("runs", "--tenant", thread)
    assert done["run_id"] in out
    assert code == 0
    assert any(each["thread_id"] for each in answer("threads", "--limit", "5"))


@pytest.mark.parametrize("listing", ["runs", "threads"])
def test_a_list_with_more_ends_in_its_cursor(postroom: Call, answer: Any, thread: str, listing: str) -> None:
    agent = f"a-{uuid.uuid4().hex[:8]}"
    for place in range(3):
        answer("submit", agent, "x", "--thread", f"{thread} {place}")
    found: list[str] = []
    more: list[str] = []
    for items in (2, 1):
        *listed, last = answer(listing, "--agent", agent, "--limit", "2", *more)
        if "cursor" in last:
            more = ["--cursor", last["cursor"]]
        else:
            listed.append(last)
        found += [each["thread_id"] for each in listed]
        assert len(listed) == items
    assert sorted(found) == [f"{thread} {place}" for place in range(3)]
    # What people read is no JSON, and the cursor does not stand in the table.
    code, _, err = postroom(listing, "--agent", agent, "--limit", "2")
    assert (code, err) == (0, f"more: {' '.join(more)}\n")
    assert postroom(listing, "--agent", agent, "--limit", "2", "--json")[2] == ""


def test_threads_are_listed_by_what_they_do(answer: Any, thread: str, server_url: str) -> None:
    agent = f"a-{uuid.uuid4().hex[:8]}"
    (done,) = answer("submit", agent, "x", "--thread", thread)
    assert [each["thread_id"] for each in answer("threads", "--agent", agent, "--status", "busy")] == [thread]
    worked(server_url, thread, done["run_id"])
    assert [each["thread_id"] for each in answer("threads", "--agent", agent, "--status", "idle")] == [thread]
    assert answer("threads", "--agent", agent, "--status", "busy") == []


def test_cancel_interrupt_and_retry(answer: Any, postroom: Call, thread: str) -> None:
    (first,), (second,) = (answer("submit", "clerk", "x", "--thread", thread) for _ in range(2))
    assert answer("cancel", first["run_id"])[0]["outcome"] == "cancelled"
    assert answer("interrupt", thread)[0]["ended"] == [second["run_id"]]
    assert postroom("retry", first["run_id"])[1].startswith("queued ")
    assert postroom("tail", first["run_id"])[0] == 1  # how the run ended is the exit code


def test_decide_and_send(answer: Any, postroom: Call, thread: str, server_url: str) -> None:
    (done,) = answer("submit", "clerk", "x", "--thread", thread)
    worked(server_url, thread, done["run_id"], suspend=True)
    assert answer("send", thread, "psst", "--id", "m1")[0]["outcome"] == "accepted"
    assert postroom("send", thread, "psst", "--id", "m1")[1].startswith("again as number 1")
    (decided,) = answer("decide", done["run_id"], "k1", "deny", "--reason", "no", "--id", "d1")
    assert (decided["outcome"], decided["run_status"]) == ("accepted", "queued")
    found = answer("inspect", done["run_id"])[0]
    assert found["calls"][0]["decision"]["reason"] == "no"
    assert any("HGETALL" in line for line in found["redis"])
    assert answer("inspect", thread)[0]["unread"][0]["id"] == "m1"


def waiting_for(url: str, thread: str, run_id: str, *calls: str) -> None:
    """The run waits for an answer to each of these calls."""
    with Dispatcher(url) as client:
        owner = Owner(thread, run_id, ops.run(client.client, lock.claim(thread, run_id, "w", 10_000)).fence)
        batch = Batch(1, step=1)
        for call in calls:
            batch.raise_ticket(call, {"id": f"of-{call}", "call_id": call, "tool": "pay"})
        ops.run(client.client, commit.suspend(owner, batch, WaitingReason.APPROVAL))


def test_a_decision_carries_its_value(answer: Any, postroom: Call, thread: str, server_url: str) -> None:
    (done,) = answer("submit", "clerk", "x", "--thread", thread)
    run = done["run_id"]
    waiting_for(server_url, thread, run, "c1", "c2", "c3")
    for words, complaint in (
        (["of-c1", "answer"], "the answer to of-c1 is missing"),
        (["of-c1", "answer", "--result", "Bern"], "not JSON"),
        (["of-c1", "allow_once", "--arguments", "[1]"], "arguments"),
        (["of-c1"], "needs a ticket or call and an action"),
        ([], "needs a ticket or call and an action"),
        (["of-c1", "answer", "--file", "-"], "leave target, action out"),
        (["--file", "/no/such/file"], "cannot be read"),
    ):
        code, out, err = postroom("decide", run, *words)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert complaint in err
    assert answer("decide", run, "c1", "answer", "--result", '{"city": "Bern"}')[0]["outcome"] == "accepted"
    answer("decide", run, "c2", "allow_once", "--arguments", '{"euros": 5}', "--by", "ann")
    answer("decide", run, "c3", "deny", "--reason", "too much")
    first, second, third = (call["decision"] for call in answer("inspect", run)[0]["calls"])
    assert (first["action"], first["result"]) == ("answer", {"city": "Bern"})
    assert (second["arguments"], second["by"]) == ({"euros": 5}, "ann")
    assert third["reason"] == "too much"


def test_several_decisions_are_one_file(
    answer: Any, postroom: Call, thread: str, server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (done,) = answer("submit", "clerk", "x", "--thread", thread)
    run = done["run_id"]
    waiting_for(server_url, thread, run, "c1", "c2")
    first = {"target": "c1", "action": "answer", "result": "yes", "id": f"d1-{run}"}
    second = {"target": "of-c2", "action": "allow_once", "arguments": {"euros": 5}, "by": "bob", "id": f"d2-{run}"}
    place = tmp_path / "decisions.json"
    for wrong in (
        "no json",
        "[]",
        "{}",
        "[5]",
        '[{"target": "c1"}]',
        json.dumps([first, {**second, "colour": "red"}]),
        json.dumps([{**first, "action": "allow_once"}, {"target": "c2", "action": "answer"}]),
        json.dumps([first, {"target": "ghost", "action": "deny"}]),
    ):
        place.write_text(wrong)
        code, out, err = postroom("decide", run, "--file", str(place))
        assert (code, out, err.count("\n")) == (2, "", 1), err
    assert [call["ticket_status"] for call in answer("inspect", run)[0]["calls"]] == ["open", "open"]
    place.write_text(json.dumps([first, second]))
    assert answer("decide", run, "--file", str(place), "--by", "ann")[0]["outcome"] == "accepted"
    monkeypatch.setattr("sys.stdin", StringIO(json.dumps([first, second])))
    assert answer("decide", run, "--file", "-")[0]["outcome"] == "again"
    found = [call["decision"] for call in answer("inspect", run)[0]["calls"]]
    assert [(each["by"], each.get("result"), each.get("arguments")) for each in found] == [
        ("ann", "yes", None),
        ("bob", None, {"euros": 5}),
    ]


def dead(answer: Any, url: str, thread: str) -> str:
    """A run that was given up."""
    (done,) = answer("submit", "clerk", "x", "--thread", thread)
    with Dispatcher(url) as client:
        fence = ops.run(client.client, lock.claim(thread, done["run_id"], "w", 10_000)).fence
        ops.run(client.client, lock.release(thread, done["run_id"], fence, "it broke", lock.Failure(None, 1)))
    return str(done["run_id"])


def test_the_redis_cli_lines_survive_a_shell(answer: Any, thread: str) -> None:
    whose = f"it's {thread} $HOME"
    (done,) = answer("submit", "clerk", "x", "--thread", whose)
    for line in answer("inspect", done["run_id"])[0]["redis"]:
        said = subprocess.run(["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True).stdout
        assert f"{{{whose}}}" in said.splitlines()[1]


def test_the_dead_are_listed_retried_and_dropped(answer: Any, thread: str, server_url: str) -> None:
    ids = [dead(answer, server_url, thread) for _ in range(2)]
    listed = [run["run_id"] for run in answer("dead", "list")]
    assert set(ids) <= set(listed)
    assert answer("dead", "drop", ids[0])[0]["dropped"] is True
    assert answer("dead", "retry", ids[1])[0]["outcome"] == "queued"
    assert not set(ids) & {run["run_id"] for run in answer("dead", "list")}


def test_a_dead_run_is_retried_once(answer: Any, postroom: Call, thread: str, server_url: str) -> None:
    run = dead(answer, server_url, thread)
    (first,) = answer("dead", "retry", run)
    code, out, err = postroom("dead", "retry", run)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "not on the list" in err
    with Dispatcher(server_url) as client:
        # As if whoever retried it had died before it came off the list.
        client.client.zadd(keys.DEAD, {run: 1})
        assert client.get_run(first["run_id"]).idempotency_key == f"retry:{run}"
    (second,) = answer("dead", "retry", run)
    assert (second["outcome"], second["run_id"]) == ("again", first["run_id"])
    for run_id in ("nosuch", first["run_id"]):
        for do in ("retry", "drop"):
            code, out, err = postroom("dead", do, run_id)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert "not on the list" in err


def test_each_of_the_dead_is_handled_by_itself(postroom: Call, answer: Any, thread: str, server: Server) -> None:
    def on_it(*words: str) -> Any:
        return answer(*words, "--url", server.url)

    runs = [dead(on_it, server.url, f"{thread} {place}") for place in range(3)]
    with Dispatcher(server.url) as client:
        # The one in the middle cannot be submitted again.
        client.client.hset(keys.run(f"{thread} 1", runs[1]), "queue", "no queue")
    code, out, err = postroom("dead", "retry", "--url", server.url)
    assert (code, out.count(" goes on as "), err.count("\n")) == (2, 2, 1), err
    assert [run["run_id"] for run in on_it("dead", "list")] == [runs[1]]
    assert postroom("dead", "drop", "--url", server.url)[0] == 0
    assert postroom("dead", "retry", "--url", server.url) == (0, "", "")


def test_more_than_a_page_of_the_dead_is_worked_off(postroom: Call, answer: Any, thread: str, server: Server) -> None:
    with Dispatcher(server.url) as client:
        wanted = [RunRequest(run_id=new_id(), thread_id=f"{thread} {place}") for place in range(MOST_PER_PAGE + 5)]
        client.submit_many(wanted)
        client.client.zadd(keys.DEAD, {request.run_id: 1 for request in wanted})
    assert len(answer("dead", "list", "--url", server.url)) == len(wanted)
    code, out, _ = postroom("dead", "drop", "--url", server.url)
    assert (code, out.count("dropped ")) == (0, len(wanted))
    assert answer("dead", "list", "--url", server.url) == []


def test_stats_and_doctor(answer: Any, postroom: Call) -> None:
    assert answer("stats")[0]["runs"] > 0
    assert "runs " in postroom("stats")[1]
    code, out, _ = postroom("doctor")
    assert "ok  persistence: append-only file" in out
    assert (code == 0) == ("BAD" not in out)


@pytest.mark.parametrize(
    "words",
    [
        ["submit", "two words", "x"],
        ["submit", "clerk", "x", "--thread", "a{b"],
        ["submit", "clerk", "x", "--priority", "999"],
        ["cancel", "ghost"],
        ["tail", "ghost"],
        ["tail", "ghost", "--after", "-3"],
        ["decide", "ghost", "k", "deny"],
        ["inspect", "ghost"],
        ["send", "ghost thread", "x"],
        ["runs", "--limit", "0"],
        ["runs", "--cursor", "50"],
        ["threads", "--cursor", "50"],
        ["worker"],
        ["worker", "--app", "nonsense"],
        ["worker", "--app", "no.such.module:app"],
        ["worker", "--app", "json:loads"],
        ["worker", "--app", "tests.worker.echo_app:app", "--queues", "a b"],
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(postroom: Call, words: list[str]) -> None:
    code, out, err = postroom(*words)
    assert code == 2
    assert out == ""
    assert err.startswith("postroom: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("submit clerk x --delay nan", "argument --delay: 'nan' is not a number of seconds"),
        ("submit clerk x --delay inf", "argument --delay: 'inf' is not a number of seconds"),
        ("submit clerk x --timeout nan", "argument --timeout: 'nan' is not a number of seconds"),
        ("submit clerk x --timeout soon", "argument --timeout: 'soon' is not a number of seconds"),
        ("submit clerk x --metadata {bad", "argument --metadata: '{bad' is not JSON: Expecting property name"),
        ("submit clerk x --metadata [1]", "argument --metadata: '[1]' is not a JSON object"),
        ("submit clerk x --priority high", "argument --priority: 'high' is not a whole number"),
        ("submit clerk", "the following arguments are required: text"),
        ("worker --concurrency 0", "argument --concurrency: 0 is too few; give 1 or more"),
        ("up --processes two", "argument --processes: 'two' is not a whole number"),
        ("agents put x --version 1.5", "argument --version: '1.5' is not a whole number"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_one_line(postroom: Call, words: str, told: str) -> None:
    code, out, err = postroom(*words.split(" "))
    verb = words.partition(" ")[0]
    assert (code, out) == (2, "")
    assert err.startswith(f"postroom {verb}: {told}")
    assert err.endswith(f"; see postroom {verb} --help\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\ndef (:\n", "{}, line 2: SyntaxError: invalid syntax"),
        ("\nimport there_is_no_such_module\n", "{}, line 2: ModuleNotFoundError: No module named"),
        ("from json import nothing\n", "{}, line 1: ImportError: cannot import name"),
        ("import json\njson.nothing\n", "{}, line 2: AttributeError: module 'json' has no"),
        ("import json\n\njson.loads('{')\n", "{}, line 3: JSONDecodeError: Expecting"),
        ("raise ValueError('first\\nsecond')\n", "{}, line 1: ValueError: first second"),
        ("import sys\nsys.exit(3)\n", "{}, line 2: SystemExit: 3"),
        ("from postroom.worker import Agent\nAgent(modle='x')\n", "{}, line 2: TypeError: "),
    ],
)
def test_an_app_that_cannot_be_imported_says_where(
    postroom: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    module = tmp_path / f"app_{uuid.uuid4().hex[:10]}.py"
    module.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    place = f"{module.stem}:app"
    code, out, err = postroom("worker", "--app", place)
    assert (code, out) == (2, "")
    assert err.startswith(f"postroom: --app {place!r}: {told.format(module)}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("place", [".x:app", "a..b:app", "shop.py", "shop:", ":app", "shop/app:app"])
def test_an_app_that_is_no_place_is_one_line(postroom: Call, place: str) -> None:
    code, _, err = postroom("worker", "--app", place)
    assert (code, err) == (2, f"postroom: --app {place!r} must look like package.module:app\n")


def test_an_empty_url_is_a_mistake(postroom: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "--url", ""]) == 2
    assert capsys.readouterr().err.startswith("postroom: the Redis URL given is empty; ")
    with pytest.raises(InvalidInput):
        Dispatcher("")


def test_a_server_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "--url", "redis://user:secret@127.0.0.1:1/0"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "secret" not in err


@pytest.mark.parametrize(
    "command",
    [
        "up",
        "worker",
        "dispatcher",
        "server",
        "submit",
        "runs",
        "threads",
        "tail",
        "cancel",
        "interrupt",
        "decide",
        "retry",
        "send",
        "dead",
        "webhooks",
        "agents",
        "fork",
        "replay",
        "stats",
        "inspect",
        "doctor",
    ],
)
def test_every_command_explains_itself(postroom: Call, command: str) -> None:
    code, out, _ = postroom(command, "--help")
    assert code == 0
    assert "--json" in out

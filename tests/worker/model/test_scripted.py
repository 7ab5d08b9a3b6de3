"""A model that follows a script, and answers that are kept in a file."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from postroom.mailbox.contracts import Usage
from postroom.mailbox.errors import InvalidInput
from postroom.worker.model import errors
from postroom.worker.model.base import (
    CallDropped,
    CallPart,
    Limits,
    Model,
    Part,
    ReasoningPart,
    Request,
    Reset,
    Stop,
    StopReason,
    TextPart,
    ToolSpec,
    UsagePart,
)
from postroom.worker.model.recorded import Recording, Replay, part_as_dict, part_from_dict
from postroom.worker.model.reply import whole
from postroom.worker.model.resolve import Models
from postroom.worker.model.scripted import ScriptedModel, ScriptNotFinished
from tests.worker.model.conftest import question

LATER = Request((*question("Hi").messages, {"role": "assistant", "content": "Hello"}, *question("And?").messages))


def ask(model: Model, request: Request | None = None) -> list[Part]:
    async def listen() -> list[Part]:
        return [part async for part in model.stream(request or question())]

    return asyncio.run(listen())


def test_answers_by_turn() -> None:
    model = ScriptedModel(["first", {"calls": [{"name": "f", "arguments": {"a": 1}}], "think": "hm"}])
    assert whole(ask(model)).text == "first"
    assert whole(ask(model)).text == "first"
    second = whole(ask(model, LATER))
    assert (second.calls[0].parsed, second.stop) == ({"a": 1}, StopReason.TOOL_USE)
    model.verify()


def test_a_request_beyond_the_script_is_refused() -> None:
    with pytest.raises(errors.RequestRejected, match="has 1 answers, asked for 2"):
        ask(ScriptedModel(["only"]), LATER)


def test_what_was_never_asked_for_is_told() -> None:
    model = ScriptedModel(["first", ["once", "twice"]])
    ask(model)
    with pytest.raises(ScriptNotFinished, match="answer 2 of 2 was asked for 0 times, not 2"):
        model.verify()
    ask(model, LATER)
    with pytest.raises(ScriptNotFinished, match="1 times, not 2"):
        model.verify()
    assert whole(ask(model, LATER)).text == "twice"
    model.verify()


def test_each_conversation_has_its_own_tries() -> None:
    model = ScriptedModel([[{"error": "overloaded"}, "ok"]])
    for thread in ("a", "b"):
        with pytest.raises(errors.Overloaded):
            ask(model, question(routing_key=thread))
        assert whole(ask(model, question(routing_key=thread))).text == "ok"


def test_errors_as_exceptions_and_as_codes() -> None:
    for answer in (
        errors.RateLimited("slow", 3.0),
        {"error": "model_rate_limited", "message": "slow", "retry_after": 3},
    ):
        with pytest.raises(errors.RateLimited, match="slow") as caught:
            ask(ScriptedModel([answer]))
        assert caught.value.retry_after == 3
    with pytest.raises(errors.RequestRejected, match="no error of a model"):
        ask(ScriptedModel([{"error": "oops"}]))


def test_delays_and_pieces() -> None:
    parts = ask(
        ScriptedModel([{"say": "abcd", "chunk": 2, "delay": 0.001, "pause": 0.001, "usage": {"input_tokens": 7}}])
    )
    assert parts == [TextPart("ab"), TextPart("cd"), UsagePart(Usage(input_tokens=7)), Stop(StopReason.END_TURN)]


def test_expectations() -> None:
    assert ask(ScriptedModel([{"say": "ok", "expect": "Hi"}]))
    with pytest.raises(errors.RequestRejected, match="expected 'Bye'"):
        ask(ScriptedModel([{"say": "ok", "expect": "Bye"}]))
    with pytest.raises(errors.RequestRejected, match="'sya', which means nothing"):
        ask(ScriptedModel([{"sya": "ok"}]))


def test_a_function_answers() -> None:
    model = ScriptedModel(lambda request: f"{len(request.messages)} messages")
    assert whole(ask(model, LATER)).text == "3 messages"
    model.verify()


def resolved(name: str) -> Model:
    return Models(environ={}).resolve(name)


def test_scripts_in_a_string(tmp_path: Path) -> None:
    assert whole(ask(resolved("scripted:Hello there"), LATER)).text == "Hello there"
    script = ["one", {"say": "two"}]
    assert whole(ask(resolved(f"scripted:{json.dumps(script)}"), LATER)).text == "two"
    (tmp_path / "script.json").write_text(json.dumps(script))
    assert whole(ask(resolved(f"scripted:@{tmp_path / 'script.json'}"))).text == "one"


@pytest.mark.parametrize("text", ["[oops", "[1]", "@/nowhere/script.json"])
def test_a_string_that_is_no_script(text: str) -> None:
    with pytest.raises(InvalidInput, match="model 'scripted:"):
        resolved(f"scripted:{text}")


PARTS: list[Part] = [
    TextPart("ä"),
    ReasoningPart("hm", "sig"),
    ReasoningPart("hm"),
    CallPart("a", "f", "{}"),
    UsagePart(Usage(input_tokens=1, cost_usd=0.5)),
    Reset("why"),
    CallDropped("a", "f", "why"),
    Stop(StopReason.END_TURN),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_every_part_survives_a_file(part: Part) -> None:
    assert part_from_dict(json.loads(json.dumps(part_as_dict(part)))) == part


def record(path: Path) -> tuple[list[Any], list[Request]]:
    script: list[Any] = [["one", "two"], {"say": "bro", "error": "rate_limited", "retry_after": 2}]
    model = Recording(ScriptedModel(script, "openai:m", Limits(1000)), path)
    tools = (ToolSpec("f", "does", {"type": "object"}),)
    requests = [question(tools=tools), question(tools=tools), LATER]
    return [_outcome(model, request) for request in requests], requests


def _outcome(model: Model, request: Request) -> Any:
    try:
        return ask(model, request)
    except errors.ModelError as error:
        return (type(error), error.message, error.retry_after)


def test_a_recording_plays_back_what_was_said(tmp_path: Path) -> None:
    said, requests = record(tmp_path / "tape.json")
    model: Any = resolved(f"recorded:{tmp_path / 'tape.json'}")
    assert (model.name, model.limits) == ("openai:m", Limits(1000))
    with pytest.raises(ScriptNotFinished, match="3 answers"):
        model.verify()
    # Who asks, and in which thread, does not matter.
    assert [_outcome(model, Request(each.messages, each.tools, routing_key="x")) for each in requests] == said
    model.verify()
    with pytest.raises(errors.RequestRejected, match=r"no answer \(left\)"):
        ask(model, requests[0])
    with pytest.raises(errors.RequestRejected):
        ask(Replay.read(tmp_path / "tape.json"), question("Something else"))


def test_what_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    for path, why in (("x.json", "is not one"), ("y.json", "No such file")):
        with pytest.raises(InvalidInput, match=why):
            Replay.read(tmp_path / path)

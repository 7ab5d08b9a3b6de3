"""When to ask again, how long to wait, and what becomes of an answer that broke off."""

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.worker.model import errors
from postroom.worker.model.base import CallDropped, Part, Reset, Stop, StopReason, TextPart
from postroom.worker.model.errors import ModelError, Permanent, Transient, Unavailable
from postroom.worker.model.reply import Call, Reply, whole
from postroom.worker.model.retry import GO_ON, Plan, RetryPolicy, Tries, recovery
from postroom.worker.model.retrying import Retrying
from postroom.worker.model.scripted import ScriptedModel
from tests.worker.model.conftest import question

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ModelError)]
POLICY = RetryPolicy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spoken", [True, False])
def test_only_transient_errors_are_tried_again(kind: type[ModelError], spoken: bool) -> None:
    assert (Tries().another(POLICY, kind("x"), spoken) is not None) == issubclass(kind, Transient)


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_one_sort(kind: type[ModelError]) -> None:
    if kind is not ModelError:
        assert sum(issubclass(kind, sort) for sort in (Transient, Permanent, Unavailable)) == 1
    assert len([each for each in KINDS if each.code == kind.code]) == 1


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"^[\s│├└─]*([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn[1:]) == sorted(kind.__name__ for kind in KINDS)


def test_tries_are_counted_apart() -> None:
    error = errors.ProviderFailed("x")
    assert Tries(refused=2).another(POLICY, error, spoken=False) is None
    assert Tries(refused=2).another(POLICY, error, spoken=True) == Tries(2, 1)
    assert Tries(refused=2, broken=2).another(POLICY, error, spoken=True) is None


def test_nobody_waits_for_an_hour() -> None:
    assert Tries().another(POLICY, errors.RateLimited("x", 3600.0), spoken=False) is None


@given(st.floats(0, 1), st.integers(1, 50), st.sampled_from([None, 0.0, 3.0, 20.0]))
def test_waiting_grows_is_capped_and_heeds_the_provider(draw: float, refused: int, asked: float | None) -> None:
    for kind, base in ((errors.ProviderFailed, 0.5), (errors.Overloaded, 2.0)):
        waited = Tries(refused).wait(POLICY, kind("x", asked), draw)
        longest = min(8.0, base * 2 ** (refused - 1))
        assert waited == max(longest * draw, asked or 0.0)


def test_waiting_is_spread_from_nothing_to_the_whole() -> None:
    tries, error = Tries(refused=1), errors.ProviderFailed("x")
    assert [tries.wait(POLICY, error, draw) for draw in (0.0, 0.5, 1.0)] == [0.0, 0.25, 0.5]


DONE, BEGUN, EMPTY = Call("a", "f", '{"x": 1}'), Call("b", "f", '{"x'), Call("c", "f", "")
THOUGHT = ({"type": "thinking", "text": "hm"},)


@pytest.mark.parametrize(
    ("reply", "before", "plan", "dropped"),
    [
        (Reply("words"), "", Plan.CONTINUE, ()),
        (Reply("words", calls=(BEGUN,)), "", Plan.CONTINUE, (BEGUN,)),
        (Reply("", calls=(BEGUN,)), "words", Plan.CONTINUE, (BEGUN,)),
        (Reply("words", calls=(DONE, BEGUN)), "", Plan.ACCEPT, (BEGUN,)),
        (Reply("", calls=(DONE,)), "", Plan.ACCEPT, ()),
        (Reply("", calls=(DONE, EMPTY)), "", Plan.ACCEPT, (EMPTY,)),
        (Reply("", calls=(BEGUN,)), "", Plan.RESTART, ()),
        (Reply("", calls=(EMPTY,)), "", Plan.RESTART, ()),
        (Reply(" \n", thoughts=THOUGHT), "", Plan.RESTART, ()),
    ],
)
def test_plans(reply: Reply, before: str, plan: Plan, dropped: tuple[Call, ...]) -> None:
    found = recovery(reply, before)
    assert (found.plan, found.dropped) == (plan, dropped)


class Waits:
    """A sleep that takes no time and remembers."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def asked(*answers: Any, **policy: Any) -> tuple[list[Part], ScriptedModel, list[float], ModelError | None]:
    """What one turn with these answers, one for each try, comes to."""
    model, waits = ScriptedModel([list(answers)]), Waits()
    parts: list[Part] = []

    async def listen() -> ModelError | None:
        try:
            async for part in Retrying(model, RetryPolicy(**policy), waits, lambda: 1.0).stream(question()):
                parts.append(part)
        except ModelError as error:
            return error
        return None

    return parts, model, waits.seconds, asyncio.run(listen())


def test_a_failure_before_anything_was_said_is_simply_tried_again() -> None:
    parts, model, waits, error = asked({"error": "overloaded"}, {"error": "provider_failed"}, "ok")
    assert error is None
    assert (whole(parts).text, waits) == ("ok", [2.0, 1.0])
    assert not any(isinstance(part, Reset) for part in parts)
    model.verify()


def test_tries_end() -> None:
    _, model, waits, error = asked({"error": "provider_failed"})
    assert error is not None
    assert (error.code, len(model.requests), waits) == ("model_provider_failed", 3, [0.5, 1.0])


def test_a_permanent_error_is_not_tried_again() -> None:
    _, model, waits, error = asked({"error": "context_overflow"})
    assert error is not None
    assert (error.code, len(model.requests), waits) == ("model_context_overflow", 1, [])


def test_words_are_continued() -> None:
    parts, model, _, error = asked(
        {"say": "Once upon ", "think": "hm", "error": "stream_interrupted"},
        {"say": "a time ", "error": "stream_interrupted"},
        {"say": "there was.", "usage": {"input_tokens": 5, "output_tokens": 2}},
    )
    assert error is None
    assert whole(parts).text == "Once upon a time there was."
    assert not any(isinstance(part, Reset) for part in parts)
    *_, said, wish = model.requests[2].messages
    assert said["content"][0]["text"] == "Once upon a time "
    assert wish["content"][0]["text"] == GO_ON


def test_words_are_continued_and_a_begun_call_is_dropped() -> None:
    broken = {"say": "I look. ", "calls": [{"name": "f", "id": "b", "arguments": '{"x'}], "error": "model_timeout"}
    parts, _, _, error = asked(broken, {"calls": [{"name": "f", "id": "c", "arguments": {}}]})
    assert error is None
    assert CallDropped("b", "f", "model_timeout") in parts
    reply = whole(parts)
    assert (reply.text, [call.id for call in reply.calls]) == ("I look. ", ["c"])


def test_complete_calls_are_final_whatever_was_tried() -> None:
    calls = [{"name": "f", "id": "a", "arguments": {"x": 1}}, {"name": "g", "id": "b", "arguments": '{"x'}]
    parts, model, waits, error = asked(
        {"say": "I look. ", "calls": calls, "error": "stream_interrupted"}, max_stream_retries=0
    )
    assert (error, waits, len(model.requests)) == (None, [], 1)
    assert parts[-2:] == [CallDropped("b", "g", "model_stream_interrupted"), Stop(StopReason.TOOL_USE)]
    assert [call.id for call in whole(parts).calls] == ["a"]


def test_without_anything_usable_the_answer_begins_again() -> None:
    parts, _, _, error = asked({"think": "hm", "error": "overloaded"}, "ok")
    assert error is None
    assert Reset("model_overloaded") in parts
    assert (whole(parts).text, whole(parts).thoughts) == ("ok", ())


def test_broken_answers_end_too() -> None:
    parts, model, _, error = asked({"say": "a", "error": "stream_interrupted"})
    assert error is not None
    assert (error.code, len(model.requests)) == ("model_stream_interrupted", 3)
    assert parts[:3] == [TextPart("a")] * 3


def test_a_permanent_error_in_the_middle_is_final() -> None:
    calls = [{"name": "f", "id": "a", "arguments": {"x": 1}}]
    _, model, _, error = asked({"say": "a", "calls": calls, "error": "content_filtered"})
    assert error is not None
    assert (error.code, len(model.requests)) == ("model_content_filtered", 1)

"""When a run stops: each policy at its limit, their order, and a count that survives waits and workers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from postroom.mailbox.contracts import Usage
from postroom.worker.core import stop
from postroom.worker.core.stop import RunStats, StopPolicy, counted, failed, first_stop, resumed
from postroom.worker.model.reply import Call, Reply

policy: TypeAdapter[StopPolicy] = TypeAdapter(StopPolicy)


def of(kind: str, **settings: Any) -> StopPolicy:
    return policy.validate_python({"type": kind, **settings})


def code(limit: StopPolicy, stats: RunStats, reply: Reply | None = None, now: int = 0) -> str | None:
    found = first_stop([limit], stats, reply, now)
    return found[0] if found else None


@pytest.mark.parametrize(
    ("limit", "below", "at"),
    [
        (of("max_rounds"), {"rounds": 15}, {"rounds": 16}),
        (of("max_rounds", rounds=1), {"rounds": 0}, {"rounds": 1}),
        (
            of("token_budget", max_total=10),
            {"input_tokens": 4, "output_tokens": 6},
            {"input_tokens": 4, "output_tokens": 7},
        ),
        (of("max_cost", max_usd=0.5), {"cost_usd": 0.5}, {"cost_usd": 0.51}),
        (of("max_tool_calls", max=3), {"tool_calls": 3}, {"tool_calls": 4}),
        (of("consecutive_errors", max=2), {"consecutive_errors": 1}, {"consecutive_errors": 2}),
        (of("loop_detection", window=2), {"same_texts": 1}, {"same_texts": 2}),
        (of("timeout", seconds=5), {"seen_ms": 0, "worked_ms": 5000}, {"seen_ms": 0, "worked_ms": 5001}),
        (of("wall_clock", seconds=5), {"started_ms": -5000}, {"started_ms": -5001}),
    ],
)
def test_each_policy_stops_at_its_limit_and_not_before(limit: StopPolicy, below: RunStats, at: RunStats) -> None:
    assert code(limit, {}) is None
    assert code(limit, below) is None
    assert code(limit, at) == limit.type


def test_no_limit_of_rounds() -> None:
    assert code(of("max_rounds", rounds=0), {"rounds": 10**6}) is None


def test_a_tool_that_ends_the_run() -> None:
    limit = of("stop_on_tool", tool_name="finish")
    assert code(limit, {}, Reply(calls=(Call("a", "look"),))) is None
    assert code(limit, {}, Reply(calls=(Call("a", "look"), Call("b", "finish")))) == "stop_on_tool"
    assert code(limit, {}, None) is None


def test_words_that_end_the_run() -> None:
    limit = of("content_match", pattern=r"(?i)\bdone\b")
    assert code(limit, {}, Reply("Undone.")) is None
    assert code(limit, {}, Reply("All DONE.")) == "content_match"
    assert code(limit, {}, None) is None
    assert code(of("content_match", pattern="("), {}, Reply("x")) == "content_match_invalid_regex"


def test_only_the_end_of_a_long_answer_is_searched() -> None:
    limit = of("content_match", pattern="begin|end")
    assert code(limit, {}, Reply("begin" + "x" * stop.MATCHED_CHARACTERS)) is None
    assert code(limit, {}, Reply("x" * stop.MATCHED_CHARACTERS + "end")) == "content_match"


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "never"},
        {"type": "max_rounds", "rounds": -1},
        {"type": "loop_detection", "window": 1},
        {"type": "timeout"},
        {"type": "timeout", "seconds": 0},
        {"type": "max_cost", "max_usd": 1, "currency": "eur"},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        policy.validate_python(wrong)


def test_the_limit_of_rounds_is_asked_first_and_then_the_first_in_order() -> None:
    stats: RunStats = {"rounds": 16, "tool_calls": 9, "cost_usd": 9.0}
    others = [of("max_cost", max_usd=1), of("max_tool_calls", max=1)]
    assert first_stop([*others, *stop.DEFAULT], stats, None, 0) == ("max_rounds", "16 rounds")
    assert first_stop(others, stats, None, 0) == ("max_cost", "9 dollars")
    assert first_stop(others[::-1], stats, None, 0) == ("max_tool_calls", "9 tool calls")
    assert first_stop([], stats, None, 0) is None


def test_an_answer_is_counted() -> None:
    usage = Usage(input_tokens=10, output_tokens=5, cost_usd=0.25)
    reply = Reply("Hi.", calls=(Call("a", "look"), Call("b", "look")), usage=usage)
    once = counted(resumed({}, 1000), reply, 1500)
    twice = counted(once, reply, 1700)
    assert (once["rounds"], once["tool_calls"], once["started_ms"], once["worked_ms"]) == (1, 2, 1000, 500)
    assert (twice["rounds"], twice["tool_calls"], twice["started_ms"], twice["worked_ms"]) == (2, 4, 1000, 700)
    assert (twice["input_tokens"], twice["output_tokens"], twice["cost_usd"]) == (20, 10, 0.5)


def test_time_spent_waiting_is_no_work() -> None:
    stats = counted(resumed({}, 0), Reply("Hi."), 3000)
    day = 86_400_000
    later = counted(resumed(stats, day), Reply("Ho."), day + 3000)
    assert code(of("timeout", seconds=6), later, now=day + 3000) is None
    assert code(of("timeout", seconds=6), later, now=day + 3001) == "timeout"
    assert code(of("wall_clock", seconds=86_402), later, now=day + 3000) == "wall_clock"


def test_a_clock_that_is_behind_takes_nothing_back() -> None:
    stats = counted(resumed({}, 5000), Reply("Hi."), 6000)
    assert counted(stats, Reply("Ho."), 5500)["worked_ms"] == 1000


def test_errors_in_a_row_end_with_an_answer() -> None:
    stats = failed(failed(resumed({}, 0), 1), 2)
    assert stats["consecutive_errors"] == 2
    assert "rounds" not in stats
    assert counted(stats, Reply("Hi."), 3)["consecutive_errors"] == 0


def test_the_same_words_again_and_again() -> None:
    stats: RunStats = {}
    for text in ("Wait.", "Hm.", " Hm.", "", "Hm.\n"):
        stats = counted(stats, Reply(text), 0)
    assert code(of("loop_detection", window=3), stats) == "loop_detection"
    assert code(of("loop_detection", window=4), stats) is None
    assert code(of("loop_detection", window=2), counted(stats, Reply("Ah."), 0)) is None


@given(st.lists(st.sampled_from(["", "a", "b", "\ud800"]), max_size=20), st.integers(2, 5))
def test_a_loop_is_found_exactly_when_the_last_texts_are_the_same(texts: list[str], window: int) -> None:
    stats: RunStats = {}
    for now, text in enumerate(texts):
        stats = counted(stats, Reply(text), now)
        assert json.loads(json.dumps(stats)) == stats
    last = [text for text in texts if text][-window:]
    looped = len(last) == window and len(set(last)) == 1
    assert (code(of("loop_detection", window=window), stats) == "loop_detection") is looped

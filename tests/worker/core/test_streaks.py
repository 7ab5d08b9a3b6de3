"""Tools that fail again and again: told to the model, told once more with all that went wrong, then the end."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.worker.core.calls import Outcome, failure
from postroom.worker.core.streaks import (
    ERROR_CHARACTERS,
    ErrorKind,
    GiveUp,
    GoOn,
    Streaks,
    after_round,
    kind_of,
    retry_wait,
)
from postroom.worker.tools.base import Retry

FINE = Outcome("success", "ok")


def error(message: str = "broken", kind: str | None = None) -> Outcome:
    return failure("tool_error", message, **({"error_kind": kind} if kind else {}))


def test_three_failures_a_last_chance_and_the_end() -> None:
    streaks: Streaks = {}
    for message in ("one", "two"):
        streaks, verdict = after_round(streaks, [("look", error(message))])
        assert verdict == GoOn()
    streaks, verdict = after_round(streaks, [("look", error("three"))])
    assert isinstance(verdict, GoOn)
    assert "look has failed 3 times in a row:\n1. one\n2. two\n3. three\n" in verdict.note
    streaks, verdict = after_round(streaks, [("look", error("four"))])
    assert verdict == GiveUp("tool_errors", "look failed 4 times in a row, the last time with: four")
    assert streaks == {}


def test_a_success_resets_the_tool_and_only_that() -> None:
    streaks, _ = after_round({"look": ["one", "two"], "read": ["one"]}, [("look", FINE)])
    assert streaks == {"read": ["one"]}


def test_a_success_takes_the_last_chance_back() -> None:
    streaks, _ = after_round({"look": ["one", "two", "three"]}, [("look", FINE)])
    assert after_round(streaks, [("look", error("four"))]) == ({"look": ["four"]}, GoOn())


def test_calls_made_side_by_side_count_as_one_try() -> None:
    streaks, verdict = after_round({}, [("look", error("one"))] * 5)
    assert (streaks, verdict) == ({"look": ["one"]}, GoOn())
    assert after_round({"look": ["one"]}, [("look", error()), ("look", FINE)]) == ({}, GoOn())


def test_a_call_that_waits_is_neither_failure_nor_success() -> None:
    assert after_round({"look": ["one"]}, [("look", Outcome("pending"))]) == ({"look": ["one"]}, GoOn())


def test_several_tools_at_their_limit_are_told_together() -> None:
    _, verdict = after_round({"look": ["1", "2"], "read": ["1", "2"]}, [("look", error()), ("read", error())])
    assert isinstance(verdict, GoOn)
    assert verdict.note.count("in a row:") == 2


def test_a_fatal_error_ends_the_run_at_once() -> None:
    outcomes = [("read", FINE), ("look", error("No account.", "fatal"))]
    assert after_round({}, outcomes)[1] == GiveUp("tool_failed", "look cannot go on: No account.")


def test_long_errors_are_kept_short() -> None:
    streaks, _ = after_round({}, [("look", error("x" * 100_000))])
    assert len(streaks["look"][0]) == ERROR_CHARACTERS


@pytest.mark.parametrize(
    ("said", "kind"), [("transient", ErrorKind.TRANSIENT), (None, ErrorKind.FAILED), ("odd", ErrorKind.FAILED)]
)
def test_an_outcome_says_its_kind(said: str | None, kind: ErrorKind) -> None:
    assert kind_of(error(kind=said)) is kind


def test_only_what_may_pass_and_may_be_repeated_is_repeated() -> None:
    patience = Retry(times=3, first_wait=0.2, longest_wait=0.5)
    passing = error(kind="transient")
    assert [retry_wait(passing, attempt, patience, True, 1.0) for attempt in (1, 2, 3, 4)] == [0.2, 0.4, 0.5, None]
    assert retry_wait(passing, 1, patience, True, 0.5) == 0.1
    assert retry_wait(passing, 1, patience, False, 1.0) is None
    assert retry_wait(error(kind="invalid_arguments"), 1, patience, True, 1.0) is None
    assert retry_wait(FINE, 1, patience, True, 1.0) is None
    assert retry_wait(passing, 10_000, Retry(times=10_000), True, 1.0) == 5.0


rounds = st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), min_size=1, max_size=3), max_size=12)


@given(rounds, st.integers(1, 4))
def test_it_ends_exactly_with_the_failure_after_the_last_chance(
    history: list[list[tuple[str, bool]]], limit: int
) -> None:
    streaks: Streaks = {}
    rows = {"a": 0, "b": 0}
    for calls in history:
        streaks, verdict = after_round(streaks, [(tool, FINE if fine else error()) for tool, fine in calls], limit)
        assert json.loads(json.dumps(streaks)) == streaks
        for tool in {tool for tool, _ in calls}:
            rows[tool] = 0 if any(fine for name, fine in calls if name == tool) else rows[tool] + 1
        assert isinstance(verdict, GiveUp) is any(row > limit for row in rows.values())
        if isinstance(verdict, GiveUp):
            return
        called = {tool for tool, _ in calls}
        assert bool(verdict.note) is any(row == limit for tool, row in rows.items() if tool in called)

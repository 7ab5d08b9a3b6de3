"""Whatever a tool does, there is one outcome; only a cancel gets through."""

import asyncio
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from postroom.mailbox import codec
from postroom.mailbox.contracts import Decision, DecisionAction, ResumeMode
from postroom.worker.core.calls import Outcome
from postroom.worker.core.render import result_text
from postroom.worker.core.state import State, StateKey, Update
from postroom.worker.tools.base import Retry, Tool, ToolContext
from postroom.worker.tools.define import tool
from postroom.worker.tools.errors import ToolFailed
from postroom.worker.tools.execute import execute, not_found, refusal
from postroom.worker.tools.results import Finish, Handoff, Output, Suspend
from tests.worker.tools.calling import called, context, reason

NOTES: StateKey[list[str], str] = StateKey("notes", [], lambda known, more: [*known, more])


class Order(BaseModel):
    id: int
    due: date


@dataclass
class Point:
    x: int


def returning(value: Any) -> Tool:
    @tool(name="give")
    def give() -> Any:
        return value

    return give


def raising(error: BaseException, **options: Any) -> Tool:
    @tool(name="fail", **options)
    async def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("value", "data", "text"),
    [
        ("plain words", "plain words", "plain words"),
        ("", "", ""),
        (None, None, "null"),
        ({"a": [1, True]}, {"a": [1, True]}, '{"a":[1,true]}'),
        ({1: "ü"}, {"1": "ü"}, '{"1":"ü"}'),
        (Order(id=1, due=date(2026, 1, 2)), {"id": 1, "due": "2026-01-02"}, '{"id":1,"due":"2026-01-02"}'),
        ([Point(1)], [{"x": 1}], '[{"x":1}]'),
        (float("nan"), None, "null"),
        (Output({"rows": 3}, "Three rows."), {"rows": 3}, "Three rows."),
        (Handoff("billing"), {"agent": "billing"}, "Handed over to billing."),
        (Finish({"ok": True}), {"ok": True}, '{"ok":true}'),
    ],
)
def test_what_may_be_returned(value: Any, data: Any, text: str) -> None:
    outcome = called(returning(value))
    assert outcome.status == "success"
    assert outcome.data == data
    assert result_text(outcome) == text
    assert outcome.ends is isinstance(value, Finish)
    assert outcome.handoff == ("billing" if isinstance(value, Handoff) else "")


@pytest.mark.parametrize(
    "value", [object(), {"x": object()}, b"\xff", "\ud800", {"a": "\ud800"}, 2**70, sys, "x" * 5_000_000]
)
def test_what_cannot_be_kept_is_a_clear_failure(value: Any) -> None:
    outcome = called(returning(value))
    assert reason(outcome) == "invalid_output"
    codec.encode(outcome.data)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=8) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=8,
))  # fmt: skip
def test_every_outcome_can_be_stored_and_read(value: Any) -> None:
    outcome = called(returning(value))
    codec.encode([outcome.data, outcome.message, outcome.metadata])
    result_text(outcome).encode()


def test_a_raw_outcome_is_checked_like_any_other() -> None:
    async def run(_: Any, __: ToolContext) -> Outcome:
        return Outcome("success", {"at": object()})

    assert reason(called(Tool("raw", "", {}, run))) == "invalid_output"


def test_updates_go_along_and_a_bad_one_is_the_tools_failure() -> None:
    state = State().register([NOTES])
    outcome = called(returning(Output(1, updates=[NOTES.update("a")], metadata={"took": 3})), state=state)
    assert outcome.command.updates == (Update("notes", "a"),)
    assert outcome.metadata == {"took": 3}
    assert reason(called(returning(Output(1, updates=[Update("other", 1)])), state=state)) == "invalid_output"


@pytest.mark.parametrize("arguments", [None, "", "null", "{}", {}, " "])
def test_no_arguments_are_no_arguments(arguments: Any) -> None:
    assert called(returning("ok"), arguments).data == "ok"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"x": 1', "the text is not JSON (Expecting ',' delimiter: line 1 column 8 (char 7))"),
        ("[]", "a JSON object is needed, not a list"),
        ("[1]", "a JSON object is needed, not a list"),
        ('"words"', "a JSON object is needed, not a str"),
    ],
)
def test_arguments_that_are_no_object(arguments: str, said: str) -> None:
    outcome = called(returning("ok"), arguments)
    assert reason(outcome) == "invalid_arguments"
    assert outcome.message == f"give cannot be called with these arguments: {said}. It takes: no arguments"


def test_arguments_can_be_refused_before_anybody_is_asked() -> None:
    assert refusal(returning("ok"), {}) is None
    found = refusal(returning("ok"), {"x": 1})
    assert found is not None
    assert reason(found) == "invalid_arguments"


def test_failures_name_their_kind_and_are_logged_without_arguments(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def divide(by: int) -> float:
        return 1 / by

    with caplog.at_level(logging.WARNING):
        outcome = called(divide, {"by": 0})
    assert (reason(outcome), outcome.message) == ("execution_failed", "ZeroDivisionError: division by zero")
    assert outcome.failed
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("WARNING", "tool divide failed")]
    assert caplog.records[0].exc_info
    assert "Traceback" not in result_text(outcome)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ToolFailed("no such order", "order_missing"), "order_missing", "no such order"),
        (ToolFailed("odd \ud800"), "tool_failed", "odd ?"),
        (KeyError("x"), "execution_failed", "KeyError: 'x'"),
        (ValueError(), "execution_failed", "ValueError"),
        (TimeoutError("upstream"), "execution_failed", "TimeoutError: upstream"),
        (StopIteration(), "execution_failed", "RuntimeError: coroutine raised StopIteration"),
        (SystemExit(1), "execution_failed", "SystemExit: 1"),
        (asyncio.CancelledError(), "cancelled", "fail was cancelled from within"),
        (ExceptionGroup("both", [ValueError("a"), KeyError("b")]), "execution_failed", "ValueError: a; KeyError: 'b'"),
    ],
)
def test_whatever_is_raised_is_told_to_the_model(error: BaseException, code: str, message: str) -> None:
    outcome = called(raising(error))
    assert (reason(outcome), outcome.message) == (code, message)


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), KeyError("x")])
def test_a_plain_function_may_raise_anything_too(error: BaseException) -> None:
    @tool
    def fail() -> None:
        raise error

    assert reason(called(fail)) == "execution_failed"


def test_a_timeout_is_told_as_such() -> None:
    @tool(timeout=0.01)
    async def hang() -> None:
        await asyncio.Event().wait()

    outcome = called(hang)
    assert reason(outcome) == "timeout"
    assert outcome.metadata == {"timed_out": True}
    assert outcome.message == "hang did not answer within 0.01 s"


def test_a_tool_cannot_swallow_its_timeout() -> None:
    @tool(timeout=0.01)
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except BaseException:
            return "never mind"
        return ""

    assert called(stubborn).metadata == {"timed_out": True}


def cancelled_while(body: Callable[[asyncio.Event], Any]) -> tuple[bool, int]:
    """Whether a cancel in the middle of the tool got through, and how many requests for it the task still knows."""

    async def run() -> tuple[bool, int]:
        started = asyncio.Event()

        @tool(timeout=60, retry=3)
        async def each() -> Any:
            return await body(started)

        task = asyncio.create_task(execute(each, {}, context()))
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), task.cancelling()

    return asyncio.run(run())


async def obedient(started: asyncio.Event) -> None:
    started.set()
    await asyncio.Event().wait()


async def careless(started: asyncio.Event) -> None:
    try:
        await obedient(started)
    except Exception:
        return


async def greedy(started: asyncio.Event) -> str:
    try:
        await obedient(started)
    except BaseException:
        return "swallowed"
    return ""


async def confused(started: asyncio.Event) -> None:
    try:
        await obedient(started)
    except BaseException:
        raise ToolFailed("interrupted", transient=True) from None


@pytest.mark.parametrize("body", [obedient, careless, greedy, confused])
def test_a_cancel_gets_through(body: Callable[[asyncio.Event], Any]) -> None:
    assert cancelled_while(body) == (True, 1)


def test_passing_failures_are_tried_again_with_full_jitter() -> None:
    attempts: list[int] = []
    waits: list[float] = []

    @tool(retry=Retry(4, first_wait=1, longest_wait=5))
    async def flaky(ctx: ToolContext) -> str:
        attempts.append(ctx.attempt)
        if len(attempts) < 5:
            raise ToolFailed("busy", "busy", transient=True)
        return ctx.idempotency_key

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    outcome = asyncio.run(execute(flaky, {}, context(), sleep=sleep, chance=lambda: 0.5))
    assert (outcome.data, attempts, waits) == ("r/1/c", [1, 2, 3, 4, 5], [0.5, 1.0, 2.0, 2.5])


@pytest.mark.parametrize(
    ("error", "times"), [(ToolFailed("busy", transient=True), 3), (ToolFailed("no"), 1), (ValueError("no"), 1)]
)
def test_only_passing_failures_are_tried_again(error: Exception, times: int) -> None:
    tries = 0

    @tool(retry=Retry(2, first_wait=0))
    async def fail() -> None:
        nonlocal tries
        tries += 1
        raise error

    assert called(fail).failed
    assert tries == times


def test_the_timeout_covers_the_attempts_together() -> None:
    waiting = raising(ToolFailed("busy", transient=True), timeout=0.01, retry=Retry(1, 60, 60))
    outcome = asyncio.run(execute(waiting, {}, context(), chance=lambda: 1.0))
    assert outcome.metadata == {"timed_out": True}


def test_a_question_has_a_ticket_and_the_next_one_another() -> None:
    ask = returning(Suspend("Which size?", response_schema={"type": "string"}, expires_in=60))
    first = called(ask, {}, now=1000)
    assert (first.status, first.message) == ("pending", "Which size?")
    assert first.ticket is not None
    assert (first.ticket.id, first.ticket.call_id, first.ticket.tool) == ("suspend_c", "c", "give")
    assert (first.ticket.action, first.ticket.expires_at) == ("ask", 61_000)
    assert first.ticket.resume_mode is ResumeMode.PASS_DECISION_TO_TOOL
    second = called(ask, {}, ticket=first.ticket)
    assert second.ticket is not None
    assert second.ticket.id == "suspend_c.2"
    third = called(ask, {}, ticket=second.ticket)
    assert third.ticket is not None
    assert third.ticket.id == "suspend_c.3"


def answer(action: DecisionAction, result: Any = None, reason: str | None = None) -> Decision:
    return Decision(id="d", target="c", action=action, result=result, reason=reason)


def test_the_answer_is_passed_to_the_tool() -> None:
    @tool
    async def size(ctx: ToolContext) -> Any:
        return f"size {ctx.decision.result}" if ctx.decision else Suspend("Which size?")

    first = called(size)
    assert called(size, ticket=first.ticket, decision=answer(DecisionAction.ANSWER, "L")).data == "size L"


def test_the_answer_may_be_the_result() -> None:
    ask = returning(Suspend("Which size?", resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT))
    ticket = called(ask).ticket
    assert called(ask, ticket=ticket, decision=answer(DecisionAction.ANSWER, {"size": "L"})).data == {"size": "L"}
    denied = called(ask, ticket=ticket, decision=answer(DecisionAction.DENY, reason="not today"))
    assert (reason(denied), denied.message) == ("denied", "not today")


def test_unknown_tools() -> None:
    assert not_found("x").message == "tool 'x' not found"
    assert reason(not_found("x")) == "not_found"

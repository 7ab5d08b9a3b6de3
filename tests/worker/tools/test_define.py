"""A function becomes a tool: its schema, what it is called with, and every mistake found when it is defined."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from postroom.mailbox.errors import InvalidInput
from postroom.worker.tools.base import Approval, Retry, ToolContext
from postroom.worker.tools.define import tool
from postroom.worker.tools.execute import execute
from tests.worker.tools.calling import called, context, reason


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    zip: str = "0000"


@dataclass
class Point:
    x: int
    y: int


@tool
async def lookup(order_id: str, limit: int = 10) -> dict[str, Any]:
    """Finds an order.

    And says more about it than a model needs to know.
    """
    return {"order": order_id, "limit": limit}


def test_the_signature_is_the_schema() -> None:
    assert (lookup.name, lookup.description) == ("lookup", "Finds an order.")
    assert lookup.parameters == {
        "type": "object",
        "properties": {"order_id": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
        "required": ["order_id"],
        "additionalProperties": False,
    }


def test_fields_say_more() -> None:
    @tool
    def paint(
        colour: Annotated[Colour, Field(description="What to paint in.")],
        coats: Annotated[int, Field(ge=1, le=3)] = 1,
        finish: Literal["matt", "gloss"] = Field("matt", description="How it shines."),
    ) -> None: ...

    found = paint.parameters["properties"]
    assert found["colour"]["description"] == "What to paint in."
    assert (found["coats"]["minimum"], found["coats"]["maximum"], found["coats"]["default"]) == (1, 3, 1)
    assert found["finish"] == {
        "type": "string", "enum": ["matt", "gloss"], "default": "matt", "description": "How it shines."
    }  # fmt: skip
    assert paint.parameters["required"] == ["colour"]


def test_nested_models_arrive_as_models() -> None:
    seen: list[Any] = []

    @tool
    def send(to: Address, at: Point, on: date, tags: set[str] = set()) -> None:  # noqa: B006
        seen.extend([to, at, on, tags])

    outcome = called(send, {"to": {"street": "Elm"}, "at": {"x": 1, "y": 2}, "on": "2026-01-02", "tags": ["a", "a"]})
    assert outcome.status == "success"
    assert seen == [Address(street="Elm"), Point(1, 2), date(2026, 1, 2), {"a"}]
    assert "Address" in send.parameters["$defs"]


def test_parameters_may_have_any_name() -> None:
    @tool
    def odd(json: str, schema: int, model_config: bool, _hidden: str, copy: str = "c", /) -> list[Any]:
        return [json, schema, model_config, _hidden, copy]

    given = {"json": "j", "schema": 1, "model_config": True, "_hidden": "h"}
    assert set(odd.parameters["properties"]) == {*given, "copy"}
    assert called(odd, given).data == ["j", 1, True, "h", "c"]


def test_the_context_is_given_and_not_described() -> None:
    @tool
    async def whoami(ctx: ToolContext) -> str:
        return ctx.idempotency_key

    @tool
    async def maybe(name: str, ctx: ToolContext | None = None) -> str:
        return f"{name} {ctx.call_id if ctx else '-'}"

    assert whoami.parameters["properties"] == {}
    assert called(whoami).data == "r/1/c"
    assert list(maybe.parameters["properties"]) == ["name"]
    assert called(maybe, {"name": "n"}).data == "n c"


def test_plain_functions_run_in_a_thread_with_the_callers_variables() -> None:
    who = contextvars.ContextVar("who", default="nobody")

    @tool
    def where() -> list[str]:
        return [threading.current_thread().name, who.get()]

    async def call() -> Any:
        who.set("ann")
        return (await execute(where, {}, context())).data

    name, seen = asyncio.run(call())
    assert name.startswith("postroom-tool")
    assert seen == "ann"


def test_progress_told_from_a_thread_arrives_in_the_loops_thread_before_the_outcome() -> None:
    told: list[tuple[str, str]] = []

    @tool
    def slow(ctx: ToolContext) -> str:
        ctx.tell("half")
        return "done"

    assert called(slow, tell=lambda words: told.append((words, threading.current_thread().name))).data == "done"
    assert told == [("half", "MainThread")]


def test_a_wrapped_coroutine_function_is_awaited() -> None:
    def traced(function: Any) -> Any:
        @wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return inner

    async def original(x: int) -> int:
        return x + 1

    assert called(tool(traced(original)), {"x": 1}).data == 2


def test_a_bound_method_is_a_tool() -> None:
    class Shop:
        def price(self, item: str) -> str:
            return f"{item}: 3"

    assert called(tool(Shop().price), {"item": "tea"}).data == "tea: 3"


def test_the_function_stays_at_hand_for_tests() -> None:
    assert lookup.function is not None
    assert asyncio.run(lookup.function("7")) == {"order": "7", "limit": 10}


def test_options() -> None:
    @tool(
        name="wipe-all", description="Wipes.", timeout=3, parallel_safe=False, idempotent=True, output_limit=100,
        retry=2, kind="execute",
    )  # fmt: skip
    def wipe() -> None: ...

    assert (wipe.name, wipe.description, wipe.timeout, wipe.output_limit) == ("wipe-all", "Wipes.", 3, 100)
    assert (wipe.parallel_safe, wipe.idempotent, wipe.retry, wipe.kind) == (False, True, Retry(2), "execute")
    assert wipe.needs_approval is None


def test_who_asks_for_approval() -> None:
    def pay(euros: int) -> None: ...

    big = Approval("A large sum.")
    cases: list[tuple[Any, dict[str, Any], str | None]] = [
        (True, {}, "May pay be called?"),
        (False, {}, None),
        (big, {}, "A large sum."),
        (lambda arguments: arguments["euros"] > 10, {"euros": 11}, "May pay be called?"),
        (lambda arguments: arguments["euros"] > 10, {"euros": 9}, None),
        (lambda arguments: big, {}, "A large sum."),
        (lambda arguments: arguments["euros"] > 10, {}, "May pay be called?"),  # it fails, so somebody is asked
    ]
    for asked, arguments, message in cases:
        made = tool(needs_approval=asked)(pay)
        found = made.needs_approval(arguments) if made.needs_approval else None
        assert (found.message if found else None) == message
    usual = tool(needs_approval=True)(pay).needs_approval
    assert usual is not None
    assert (found := usual({})) is not None
    assert found.action_key == "tool:pay"


def test_wrong_arguments_are_told_all_together() -> None:
    outcome = called(lookup, {"limit": "many", "colour": "red"})
    assert reason(outcome) == "invalid_arguments"
    assert outcome.message == (
        "lookup cannot be called with these arguments: order_id: Field required; "
        "limit: Input should be a valid integer, unable to parse string as an integer; "
        "colour: Extra inputs are not permitted. It takes: order_id: string, limit?: integer"
    )


def _local() -> Any:
    class Hidden:
        pass

    def takes(x: "Hidden") -> None: ...

    return takes


def _args(*args: int, **kwargs: int) -> None: ...
def _untyped(x, y: int) -> None: ...  # type: ignore[no-untyped-def]
def _opaque(x: threading.Lock, y: int) -> None: ...
async def _yields() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (_args, {}, ["*args cannot be described", "**kwargs cannot be described"]),
        (_untyped, {}, ["parameter 'x' has no type"]),
        (_opaque, {}, ["the type of 'x' has no JSON schema"]),
        (_yields, {}, ["it yields"]),
        (_local(), {}, ["'Hidden' is not defined"]),
        (lambda: None, {}, ["'<lambda>' must be 1 to 64 letters"]),
        (lookup.function, {"name": "look up"}, ["'look up' must be"]),
        (
            lookup.function,
            {"timeout": 0, "kind": "magic"},
            ["timeout must be a number of seconds", "kind must be one of"],
        ),
        (lookup.function, {"retry": -1, "output_limit": 1.5}, ["retry must be", "output_limit must be"]),
        (lookup.function, {"timeuot": 3}, ["there is no option 'timeuot'"]),
        (lookup.function, {"needs_approval": lookup.function}, ["needs_approval must be"]),
    ],
)
def test_mistakes_are_found_at_the_definition(function: Any, options: Any, said: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        tool(**options)(function)
    assert "cannot be defined" in str(caught.value)
    assert "\n" not in str(caught.value)
    for each in said:
        assert each in str(caught.value)


def test_what_is_no_function_is_no_tool() -> None:
    with pytest.raises(InvalidInput, match="@tool needs a function, not a int"):
        tool(3)  # type: ignore[call-overload]

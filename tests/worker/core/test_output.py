"""Structured output: right answers become data, wrong ones a short text for the model to do better."""

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.output import Accepted, Refused, Shape, asked, checked
from postroom.worker.core.schema import PROBLEM_CHARACTERS, PROBLEMS


class Order(BaseModel):
    id: int = Field(ge=1)
    due: date
    tags: tuple[str, ...] = ()


SCHEMA: dict[str, Any] = Order.model_json_schema()
RIGHT = '{"id": 7, "due": "2026-01-31", "tags": ["a"]}'
SHAPES = pytest.mark.parametrize("shape", [Order, SCHEMA])


@SHAPES
@pytest.mark.parametrize(
    "answer",
    [
        RIGHT,
        f"  {RIGHT}\n",
        f"```json\n{RIGHT}\n```",
        f"```\n{RIGHT}\n```",
        f"Here it is:\n```json\n{RIGHT}\n```\nAnything else?",
        f"```python\nprint()\n```\nand\n```json\n{RIGHT}\n```",
    ],
)
def test_json_alone_or_in_a_fence_is_accepted(shape: Shape, answer: str) -> None:
    assert checked(answer, shape) == Accepted(json.loads(RIGHT))


@SHAPES
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("", "the answer is empty"),
        ("Sorry, no.", "the answer is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ('```json\n{"id": 7,}\n```', "the answer is not JSON: Expecting property name"),
        ('{"id": NaN, "due": "2026-01-31"}', "the answer is not JSON: NaN is not a number in JSON"),
        ("[" * 100_000, "the answer is nested too deeply"),
    ],
)
def test_what_is_not_json_is_told(shape: Shape, answer: str, problem: str) -> None:
    found = checked(answer, shape)
    assert isinstance(found, Refused)
    assert found.problems[0].startswith(problem)
    assert found.problems[0] in found.repair


@SHAPES
def test_each_problem_says_where_it_is(shape: Shape) -> None:
    found = checked('{"id": 0, "due": "2026-01-31", "tags": ["a", 2]}', shape)
    assert isinstance(found, Refused)
    assert [problem.partition(":")[0] for problem in found.problems] == ["$.id", "$.tags[1]"]


@SHAPES
def test_the_text_is_bounded(shape: Shape) -> None:
    found = checked(json.dumps({"id": "x" * 10**6, "due": "y" * 10**6, "tags": list(range(10_000))}), shape)
    assert isinstance(found, Refused)
    assert len(found.repair) < (PROBLEMS + 1) * PROBLEM_CHARACTERS


def test_a_model_gives_plain_data_with_its_defaults() -> None:
    assert checked('{"id": 1, "due": "2026-01-31"}', Order) == Accepted({"id": 1, "due": "2026-01-31", "tags": []})


def test_providers_are_told_the_schema() -> None:
    assert asked(Order).name == "Order"
    assert asked(Order).schema == asked(SCHEMA, "order").schema
    with pytest.raises(InvalidInput, match="the output schema 'order' is not a JSON schema"):
        asked({"type": "thing"}, "order")


@given(
    st.text()
    | st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)).map(
        json.dumps
    )
)
def test_any_answer_is_accepted_or_refused(answer: str) -> None:
    for shape in (Order, SCHEMA):
        found = checked(answer, shape)
        assert isinstance(found, Refused) or Order.model_validate(found.value)
    anything = checked(answer, {})
    assert isinstance(anything, Refused) or json.loads(json.dumps(anything.value)) == anything.value

"""JSON schemas: bad ones are refused, and what is wrong with a value is told briefly."""

import pytest

from postroom.mailbox.errors import InvalidInput
from postroom.worker.core import schema

ORDERS = {
    "type": "object",
    "properties": {"orders": {"type": "array", "items": {"$ref": "#/$defs/order"}}},
    "required": ["orders"],
    "$defs": {"order": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}},
}


def test_a_right_value_has_no_problems() -> None:
    assert schema.problems(ORDERS, {"orders": [{"id": 1}]}) == ()


def test_each_problem_says_where_it_is() -> None:
    assert schema.problems(ORDERS, {"orders": [{"id": "x"}, {}]}) == (
        "$.orders[0].id: 'x' is not of type 'integer'",
        "$.orders[1]: 'id' is a required property",
    )


def test_problems_are_few_and_short() -> None:
    found = schema.problems(ORDERS, {"orders": [{"id": "x" * 10_000}] * 20})
    assert found[-1] == "and 15 more"
    assert len(found) == schema.PROBLEMS + 1
    assert all(len(line) <= schema.PROBLEM_CHARACTERS for line in found)


def test_what_is_no_schema_is_refused() -> None:
    schema.check(ORDERS)
    with pytest.raises(InvalidInput, match=r"the output schema is not a JSON schema: \$\.type: 'thing' is not valid"):
        schema.check({"type": "thing"}, "the output schema")


def test_a_schema_of_an_older_draft_is_read_as_such() -> None:
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"type": "integer"}]}
    assert schema.problems(old, ["x"]) == ("$[0]: 'x' is not of type 'integer'",)


def test_a_schema_never_makes_us_fetch_anything() -> None:
    with pytest.raises(InvalidInput, match=r"refers to 'https://example.org/order.json', which is not in it"):
        schema.problems({"$ref": "https://example.org/order.json"}, {})


def test_a_value_nested_too_deeply_is_a_problem_and_no_crash() -> None:
    value: list[object] = []
    for _ in range(5000):
        value = [value]
    assert schema.problems({"type": "array", "items": {"$ref": "#"}}, value) == ("$: nested too deeply",)

"""Definitions of agents as data: what is refused, and that the same definition is the same text."""

from typing import Any

import pytest

from postroom.mailbox.contract import parse
from postroom.mailbox.errors import BodyTooLarge, InvalidInput
from postroom.mailbox.specs import MAX_SPEC_BYTES, AgentSpec, read_spec

FULL: dict[str, Any] = {
    "id": "support",
    "model": "openai:gpt-5",
    "description": "Answers questions.",
    "instructions": "Be brief. Grüße!",
    "tools": ["lookup", "refund"],
    "allow": ["*"],
    "exclude": ["refund_*"],
    "delegates": ["billing"],
    "max_rounds": 8,
    "stop": [{"type": "timeout", "seconds": 30}],
    "context": {"max_context_tokens": 1000},
    "compaction": {"mode": "off"},
    "effort": "low",
    "temperature": 0.2,
    "max_tokens": 500,
    "plugins": ["audit"],
    "active_hooks": ["audit"],
    "sections": {"audit": {"level": 2}},
    "output": {"type": "object"},
    "behaviour": {"parallel": 1},
}


def test_a_definition_survives_being_stored() -> None:
    spec = parse(AgentSpec, FULL)
    assert read_spec(spec.written()) == spec
    assert spec.stop[0].model_dump() == {"type": "timeout", "seconds": 30}
    assert (spec.behaviour.parallel, spec.behaviour.nudges) == (1, 2)


def test_the_same_definition_is_the_same_text() -> None:
    turned = dict(reversed(list(FULL.items())))
    assert parse(AgentSpec, turned).written() == parse(AgentSpec, FULL).written()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": "two words"}, "agent 'two words' must be"),
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"colour": "red"}, "colour"),
        ({"tools": ["a", "a"]}, "tools names 'a' twice"),
        ({"tools": ["a b"]}, "tool 'a b' must be"),
        ({"tools": ["t"] * 1000}, "tools"),
        ({"sections": {"ghost": {}}}, "sections names 'ghost'"),
        ({"active_hooks": ["ghost"]}, "active_hooks names 'ghost'"),
        ({"effort": "enormous"}, "effort"),
        ({"temperature": float("nan")}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_rounds": -1}, "max_rounds"),
        ({"stop": [{"seconds": 3}]}, "stop"),
        ({"output": "text"}, "output"),
        ({"behaviour": {"parallel": 0}}, "parallel"),
        ({"instructions": len}, "instructions"),
    ],
)
def test_a_mistake_is_one_clear_line(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse(AgentSpec, {**FULL, **change})
    assert words in error.value.message
    assert "\n" not in error.value.message


def test_a_definition_has_a_limit() -> None:
    spec = parse(AgentSpec, {**FULL, "context": {"x": "y" * MAX_SPEC_BYTES}})
    with pytest.raises(BodyTooLarge, match="agent 'support' takes"):
        spec.written()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"id": "x"}'])
def test_what_is_no_definition_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="AgentSpec"):
        read_spec(text)

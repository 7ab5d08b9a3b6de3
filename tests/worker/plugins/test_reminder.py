"""Reminders: after which calls the model is told what."""

from typing import Any

import pytest
from pydantic import ValidationError

from postroom.mailbox.contracts import parse
from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.calls import Outcome, failure
from postroom.worker.core.command import Phase
from postroom.worker.plugins.reminder import Reminder, ReminderMessage, ReminderRule, ReminderSection
from tests.worker.plugins.asking import Asked, after, call

GOOD = Outcome("success", {"files": [{"name": "a.py"}], "total": 3})
BAD = failure("timeout", "too slow")


def section(*rules: dict[str, Any]) -> ReminderSection:
    return parse(ReminderSection, {"rules": [{"message": {"content": "mind"}, **each} for each in rules]})


def said(known: Asked, name: str, arguments: dict[str, Any], outcome: Outcome) -> list[dict[str, Any]]:
    command = known.hooks(Phase.AFTER_TOOL_EXECUTE, **after(call(name, arguments), outcome))
    assert {(each.phase, each.key) for each in command.actions} <= {(Phase.BEFORE_INFERENCE, "add_context_message")}
    return [each.payload for each in command.actions]


@pytest.mark.parametrize(
    ("rule", "outcome", "speaks"),
    [
        ({"tool": "Edit"}, GOOD, True),
        ({"tool": "Edit", "output": "any"}, BAD, True),
        ({"tool": "Read"}, GOOD, False),
        ({"tool": 'Edit(path ~ "*.py")'}, GOOD, True),
        ({"tool": 'Edit(path ~ "*.rs")'}, GOOD, False),
        ({"tool": "Edit", "output": {"status": "error"}}, BAD, True),
        ({"tool": "Edit", "output": {"status": "error"}}, GOOD, False),
        ({"tool": "Edit", "output": {"text": "*a.py*"}}, GOOD, True),
        ({"tool": "Edit", "output": {"text": {"op": "=~", "value": "total.:[0-9]"}}}, GOOD, True),
        ({"tool": "Edit", "output": {"text": {"op": "=", "value": "x"}}}, Outcome("success", "x"), True),
        ({"tool": "Edit", "output": {"fields": 'files[*].name = "a.py", total = "3"'}}, GOOD, True),
        ({"tool": "Edit", "output": {"fields": 'total != "3"'}}, GOOD, False),
        ({"tool": "Edit", "output": {"fields": 'total != "3"'}}, Outcome("success", None), False),
        ({"tool": "Edit", "output": {"status": "error", "fields": 'error.code = "timeout"'}}, BAD, True),
        ({"tool": "Edit", "output": {"status": "success", "text": "*timeout*"}}, BAD, False),
    ],
)
def test_when_a_rule_speaks(rule: dict[str, Any], outcome: Outcome, speaks: bool) -> None:
    known = Asked(Reminder(), section(rule))
    assert bool(said(known, "Edit", {"path": "x.py"}, outcome)) is speaks


def test_all_that_match_speak_and_those_in_code_come_first() -> None:
    mine = ReminderRule(tool="*", name="mine", message=ReminderMessage(content="first"))
    known = Asked(
        Reminder([mine]),
        section({"tool": "Edit", "message": {"content": "second", "target": "system", "cooldown_turns": 3}}),
    )
    first, second = said(known, "Edit", {}, GOOD)
    assert (first["key"], first["target"]) == ("reminder:mine", "suffix_system")
    assert first["content"] == [{"type": "text", "text": "first"}]
    assert (second["key"], second["content"][0]["text"], second["target"]) == ("reminder:1", "second", "system")
    assert (first["cooldown_turns"], second["cooldown_turns"]) == (0, 3)
    assert [each["content"][0]["text"] for each in said(known, "Read", {}, GOOD)] == ["first"]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"tool": "Edit("}, "expected"),
        ({"tool": "Edit", "output": "some"}, "must be 'any'"),
        ({"tool": "Edit", "output": {"fields": "a = b"}}, "quotes"),
        ({"tool": "Edit", "output": {"status": "fine"}}, "success"),
    ],
)
def test_a_bad_rule_is_one_clear_line(rule: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        section(rule)
    assert not isinstance(caught.value, ValidationError)
    assert "\n" not in str(caught.value)

"""Reminders: words for the model after a call went a certain way."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from postroom.mailbox.contracts import Contract, Text
from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.actions import add_context_message
from postroom.worker.core.calls import OpenCall, Outcome
from postroom.worker.core.command import Command, Phase
from postroom.worker.core.context_messages import ContextMessage, Target
from postroom.worker.core.pattern_parser import parse, parse_conditions
from postroom.worker.core.patterns import as_text, compared
from postroom.worker.plugins.base import HookContext, Plugin, Registrar


class TextMatch(Contract):
    """What the result must read like; `~` is a glob, `=` exactly, `=~` a regular expression, `!` the opposite."""

    value: str
    op: Literal["~", "=", "=~", "!~", "!=", "!=~"] = "~"


class OutputMatch(Contract):
    """What must be true of a result, all of it; nothing said is true of any.

    `fields` are conditions as in patterns, such as `error.code = "timeout"`; no data satisfies none of them.
    """

    status: Literal["success", "error", "pending"] | None = None
    text: TextMatch | None = None
    fields: str | None = None

    @field_validator("text", mode="before")
    @classmethod
    def _a_glob(cls, given: Any) -> Any:
        return {"value": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _readable(self) -> "OutputMatch":
        if self.fields is not None:
            parse_conditions(self.fields)
        return self

    def matches(self, outcome: Outcome) -> bool:
        """Whether a result is like this."""
        return (
            self.status in (None, outcome.status)
            and (self.text is None or compared(self.text.op, self.text.value, as_text(outcome.data)))
            and (self.fields is None or all(each.holds(outcome.data) for each in parse_conditions(self.fields)))
        )


class ReminderMessage(Contract):
    """What to say, where in the request, and for how many steps not again."""

    content: str
    target: Target = Target.SUFFIX_SYSTEM
    cooldown_turns: int = Field(default=0, ge=0)


class ReminderRule(Contract):
    """After which calls to say what; `tool` is a pattern, `output` is `any` or what must be true of the result."""

    tool: str
    message: ReminderMessage
    name: str | None = None
    output: OutputMatch = OutputMatch()

    @field_validator("output", mode="before")
    @classmethod
    def _any(cls, given: Any) -> Any:
        if isinstance(given, str) and given != "any":
            raise InvalidInput(f"reminder output {given!r} must be 'any' or say status, text or fields")
        return {} if given == "any" else given

    @model_validator(mode="after")
    def _readable(self) -> "ReminderRule":
        parse(self.tool)
        return self

    def matches(self, call: OpenCall, outcome: Outcome) -> bool:
        """Whether this call went that way; arguments that were not JSON are no arguments."""
        arguments = {} if isinstance(call.arguments, str) else call.arguments
        return parse(self.tool).matches(call.name, arguments) and self.output.matches(outcome)


class ReminderSection(Contract):
    """The agent's settings under `reminder`."""

    rules: tuple[ReminderRule, ...] = ()


class Reminder(Plugin):
    """Every rule that matches speaks; rules given in code come before those in settings."""

    id = "reminder"
    section = ReminderSection

    def __init__(self, rules: Sequence[ReminderRule] = ()) -> None:
        self._rules = tuple(rules)

    def register(self, registrar: Registrar) -> None:
        """The hook after each call."""
        registrar.hook(Phase.AFTER_TOOL_EXECUTE, self._remind)

    def _remind(self, context: HookContext) -> Command | None:
        call, outcome = context.call, context.outcome
        if call is None or outcome is None:
            return None
        rules = (*self._rules, *context.config(ReminderSection).rules)
        return Command(
            actions=tuple(
                add_context_message(_said(place, rule))
                for place, rule in enumerate(rules)
                if rule.matches(call, outcome)
            )
        )


def _said(place: int, rule: ReminderRule) -> ContextMessage:
    message = rule.message
    return ContextMessage(
        key=f"reminder:{rule.name or place}",
        content=(Text(text=message.content),),
        target=message.target,
        cooldown_turns=message.cooldown_turns,
    )

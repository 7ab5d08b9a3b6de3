"""Permission: rules over tool calls, and which of them counts. A denial beats a leave, a leave beats a question."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.pattern_parser import parse
from postroom.worker.core.patterns import Pattern

Plain = dict[str, Any]


class Behavior(StrEnum):
    """What a rule says of the calls it matches."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_WEIGHT = {Behavior.ASK: 0, Behavior.ALLOW: 1, Behavior.DENY: 2}


class RuleScope(StrEnum):
    """For how long somebody meant a rule to hold; it is kept with the rule and shown with it."""

    ONCE = "once"
    SESSION = "session"
    THREAD = "thread"
    PROJECT = "project"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Rule:
    """What may happen with the calls of a pattern."""

    pattern: Pattern
    behavior: Behavior
    scope: RuleScope = RuleScope.PROJECT

    @property
    def key(self) -> str:
        """The pattern in its usual spelling."""
        return str(self.pattern)

    def as_plain(self) -> Plain:
        """As it is kept in the state and written in settings."""
        return {"tool": self.key, "behavior": self.behavior.value, "scope": self.scope.value}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may happen with a call, and the most precise rule that says so; none means it is the default."""

    behavior: Behavior
    rule: Rule | None = None


@dataclass(frozen=True, slots=True)
class Ruleset:
    """The rules that hold together, in any order, and what holds where they say nothing."""

    default: Behavior = Behavior.ASK
    rules: tuple[Rule, ...] = ()

    def evaluate(self, tool: str, arguments: Mapping[str, Any]) -> Verdict:
        """What may happen with this call."""
        matching = [rule for rule in self.rules if rule.pattern.matches(tool, arguments)]
        found = max(matching, key=lambda rule: (_WEIGHT[rule.behavior], rule.pattern.specificity), default=None)
        return Verdict(found.behavior, found) if found else Verdict(self.default)

    def denied(self, tools: Iterable[str]) -> list[str]:
        """The tools no call of which can be allowed, so that a model need not know of them."""
        return [tool for tool in tools if self._never(tool)]

    def _never(self, tool: str) -> bool:
        about = [rule for rule in self.rules if rule.pattern.names(tool)]
        if any(rule.behavior is Behavior.DENY and rule.pattern.unconditional for rule in about):
            return True
        return self.default is Behavior.DENY and all(rule.behavior is Behavior.DENY for rule in about)


def rule(tool: str, behavior: str, scope: str = RuleScope.PROJECT) -> Rule:
    """A rule from its words; a mistake in them is one clear line."""
    pattern = parse(tool)
    if pattern.broken:
        raise InvalidInput(f"rule {tool!r}: {pattern.broken[0]!r} is no regular expression")
    return Rule(pattern, Behavior(behavior), RuleScope(scope))


def replaced(rules: Iterable[Rule], newer: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules, with a newer one in place of each of the same pattern."""
    by_key = {each.key: each for each in newer}
    return (*(each for each in rules if each.key not in by_key), *by_key.values())

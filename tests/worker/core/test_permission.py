"""Which rule counts, which one is reported, and which tools a model need not know of."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.permission import Behavior, Rule, Ruleset, replaced, rule


def rules(default: str, *said: tuple[str, str]) -> Ruleset:
    return Ruleset(Behavior(default), tuple(rule(*each) for each in said))


@pytest.mark.parametrize(
    ("known", "command", "behavior", "reported"),
    [
        (rules("ask"), "ls", "ask", None),
        (rules("allow"), "ls", "allow", None),
        (rules("deny", ("Bash", "allow")), "ls", "allow", "Bash"),
        (rules("ask", ("Bash", "allow"), ("Bash(rm *)", "deny")), "rm -r", "deny", "Bash(rm *)"),
        (rules("ask", ("Bash", "allow"), ("Bash(rm *)", "deny")), "ls", "allow", "Bash"),
        (rules("ask", ("Bash(ls)", "allow"), ("*", "deny")), "ls", "deny", "*"),  # a denial beats precision
        (rules("deny", ("Bash(ls)", "ask"), ("*", "allow")), "ls", "allow", "*"),
        (rules("ask", ("*", "deny"), ("Bash", "deny"), ("/Ba/", "deny")), "ls", "deny", "Bash"),
    ],
)
def test_which_rule_counts(known: Ruleset, command: str, behavior: str, reported: str | None) -> None:
    verdict = known.evaluate("Bash", {"command": command})
    assert (verdict.behavior, verdict.rule.key if verdict.rule else None) == (behavior, reported)


def test_a_newer_rule_replaces_the_one_of_the_same_pattern_only() -> None:
    policy = [rule("Bash( * )", "deny"), rule("Read", "ask")]
    same = Ruleset(Behavior.ASK, replaced(policy, [rule("Bash", "allow")]))
    assert same.evaluate("Bash", {}).behavior == "allow"
    assert same.evaluate("Read", {}).rule == policy[1]
    other = Ruleset(Behavior.ASK, replaced(policy, [rule("Ba*", "allow")]))
    assert other.evaluate("Bash", {}).behavior == "deny"


def test_tools_that_can_never_be_allowed_are_known() -> None:
    tools = ["read", "write", "mcp__a", "mcp__b"]
    known = rules("ask", ("write", "deny"), ("mcp__*(*)", "deny"), ("read(secret*)", "deny"))
    assert known.denied(tools) == ["write", "mcp__a", "mcp__b"]
    assert rules("deny", ("read(x)", "ask"), ("write(x)", "deny")).denied(tools) == ["write", "mcp__a", "mcp__b"]


def test_a_rule_that_would_never_hold_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"'\(' is no regular expression"):
        rule('Bash(command =~ "(")', "deny")


said = st.tuples(
    st.sampled_from(["read", "re*", "/r/", "read(a)", "read(b)", 'read(x = "a")', "*(a)"]),
    st.sampled_from([each.value for each in Behavior]),
)
WEIGHT = ["ask", "allow", "deny"]


@given(st.lists(said, max_size=8), st.sampled_from([{}, {"x": "a"}, {"x": "b"}]), st.sampled_from(Behavior))
def test_the_order_of_the_rules_does_not_matter_and_the_weightiest_wins(
    pairs: list[tuple[str, str]], arguments: dict[str, Any], default: Behavior
) -> None:
    known: list[Rule] = [rule(*pair) for pair in pairs]
    forth = Ruleset(default, tuple(known)).evaluate("read", arguments)
    back = Ruleset(default, tuple(reversed(known))).evaluate("read", arguments)
    matching = [each for each in known if each.pattern.matches("read", arguments)]
    assert forth.behavior == back.behavior
    assert forth.behavior == max((each.behavior for each in matching), key=WEIGHT.index, default=default)
    if forth.rule:
        same = [each for each in matching if each.behavior is forth.behavior]
        assert forth.rule.pattern.specificity == max(each.pattern.specificity for each in same)


@given(st.lists(said, max_size=6), st.sampled_from([{}, {"x": "a"}, {"x": "b"}]), st.sampled_from(Behavior))
def test_what_is_hidden_is_denied_whatever_the_arguments(
    pairs: list[tuple[str, str]], arguments: dict[str, Any], default: Behavior
) -> None:
    known = Ruleset(default, tuple(rule(*pair) for pair in pairs))
    if known.denied(["read"]):
        assert known.evaluate("read", arguments).behavior == "deny"

"""Permission: what passes, what ends the run, what somebody is asked about, and what they answered."""

from typing import Any

import pytest

from postroom.mailbox.contracts import DecisionAction, ResumeMode, Ticket, parse
from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.actions import exclude_tool
from postroom.worker.core.calls import Block, SetResult, Suspend
from postroom.worker.core.command import Phase
from postroom.worker.core.state import Scope
from postroom.worker.plugins.permission import (
    OVERRIDES,
    POLICY,
    Permission,
    PermissionSection,
    override,
    permit,
    revoke,
)
from tests.worker.plugins.asking import Asked, call, decision


def asked(*rules: tuple[str, str], **section: Any) -> Asked:
    said = [{"tool": tool, "behavior": behavior} for tool, behavior in rules]
    return Asked(Permission(), parse(PermissionSection, {"rules": said, **section}))


def ticket_of(known: Asked, name: str, arguments: dict[str, Any]) -> Ticket:
    found = known.gate(call(name, arguments))
    assert isinstance(found, Suspend)
    return found.ticket


def test_leave_denial_and_question() -> None:
    known = asked(("read", "allow"), ("Bash(rm *)", "deny"), expires_in=60, on_expiry="stop")
    assert known.gate(call("read")) is None
    assert known.gate(call("Bash", {"command": "rm -r"})) == Block("Tool 'Bash' denied by permission rules")
    ticket = ticket_of(known, "Bash", {"command": "ls"})
    assert (ticket.id, ticket.action, ticket.arguments) == ("perm_c", "tool:PermissionConfirm", {"command": "ls"})
    assert (ticket.resume_mode, ticket.expires_at) == (ResumeMode.REPLAY_TOOL_CALL, 61_000)
    assert (ticket.on_expiry, ticket.action_key) == ("stop", "Bash")


def test_without_settings_everything_is_asked() -> None:
    assert isinstance(Asked(Permission()).gate(call("read")), Suspend)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (DecisionAction.ALLOW_ONCE, type(None)),
        (DecisionAction.ALLOW_ALWAYS, type(None)),
        (DecisionAction.ANSWER, type(None)),
        (DecisionAction.DENY, SetResult),
        (DecisionAction.CANCEL, SetResult),
        (DecisionAction.DENY_AND_STOP, Block),
    ],
)
def test_what_an_answer_does(action: DecisionAction, expected: type) -> None:
    known = asked()
    ticket = ticket_of(known, "Bash", {})
    found = known.gate(call("Bash", {}, ticket=ticket, decision=decision(action, reason="no")))
    assert isinstance(found, expected)
    if isinstance(found, SetResult):
        assert (found.outcome.failed, found.outcome.message) == (True, "no")


def test_rules_count_again_when_the_call_is_taken_up() -> None:
    known = asked()
    ticket = ticket_of(known, "Bash", {})
    allowed = call("Bash", {}, ticket=ticket, decision=decision(DecisionAction.ALLOW_ONCE))
    assert known.gate(allowed) is None
    known.state = known.state.apply([permit("Bash", "deny")])
    assert isinstance(known.gate(allowed), Block)


def test_arguments_a_person_changed_are_the_ones_that_count() -> None:
    known = asked(("Bash(rm *)", "deny"))
    changed = decision(DecisionAction.ALLOW_ONCE, arguments={"command": "rm -r"})
    assert isinstance(known.gate(call("Bash", {"command": "ls"}, decision=changed)), Block)


def test_always_is_remembered_for_what_was_asked_about_and_no_more() -> None:
    known = asked(("Bash(git *)", "ask"), ("Bash", "ask"))
    ticket = ticket_of(known, "Bash", {"command": "git push"})
    always = call("Bash", {"command": "git push"}, ticket=ticket, decision=decision(DecisionAction.ALLOW_ALWAYS))
    known.hooks(Phase.BEFORE_TOOL_EXECUTE, call=always)
    assert known.state[POLICY] == {"Bash(git *)": {"tool": "Bash(git *)", "behavior": "allow", "scope": "thread"}}
    assert known.gate(call("Bash", {"command": "git pull"})) is None
    assert isinstance(known.gate(call("Bash", {"command": "ls"})), Suspend)
    once = call("Bash", {"command": "ls"}, ticket=ticket, decision=decision(DecisionAction.ALLOW_ONCE))
    assert not known.hooks(Phase.BEFORE_TOOL_EXECUTE, call=once)


def test_what_the_thread_allows_never_beats_what_the_agent_denies() -> None:
    known = asked(("Bash", "deny"))
    known.state = known.state.apply([permit("Bash", "allow")])
    assert isinstance(known.gate(call("Bash")), Block)


def test_an_override_takes_the_place_of_its_pattern_only() -> None:
    known = asked(("Bash", "deny"), ("Read", "deny"))
    known.state = known.state.apply([override("Bash", "allow"), override("Re*", "allow")])
    assert known.gate(call("Bash")) is None
    assert isinstance(known.gate(call("Read")), Block)
    assert known.state.changed_since(Asked(Permission()).state, Scope.RUN) == {}
    assert known.state[OVERRIDES].keys() == {"Bash", "Re*"}


def test_a_rule_of_the_thread_can_be_taken_away() -> None:
    known = asked(default_behavior="allow")
    known.state = known.state.apply([permit("Bash", "deny"), permit("Bash(x)", "deny"), revoke("Bash(*)")])
    assert known.gate(call("Bash")) is None
    assert known.state[POLICY].keys() == {"Bash(x)"}


def test_tools_that_are_always_denied_are_hidden() -> None:
    known = asked(("mcp__*", "deny"), ("Bash(rm *)", "deny"))
    command = known.hooks(Phase.BEFORE_INFERENCE, tools=("Bash", "mcp__a", "mcp__b"))
    assert command.actions == (exclude_tool("mcp__a"), exclude_tool("mcp__b"))


def test_nobody_is_asked_about_arguments_that_are_not_json() -> None:
    known = asked(("Bash", "deny"))
    assert known.gate(call("read", '{"x": ')) is None
    assert isinstance(known.gate(call("Bash", '{"x": ')), Block)


def test_a_bad_rule_is_one_clear_line() -> None:
    with pytest.raises(InvalidInput, match="character 16"):
        asked(("Bash(command ~ rm)", "deny"))
    with pytest.raises(InvalidInput, match="no regular expression"):
        asked(('Bash(command =~ "(")', "deny"))

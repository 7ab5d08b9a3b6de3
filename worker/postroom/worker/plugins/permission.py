"""Permission: rules that allow calls, deny them or have somebody asked, from the agent's settings and from the run."""

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, model_validator

from postroom.mailbox.contracts import Contract, DecisionAction
from postroom.worker.core.actions import exclude_tool
from postroom.worker.core.calls import Block, Intercept, OpenCall
from postroom.worker.core.command import NOTHING, Command, Phase
from postroom.worker.core.permission import Behavior, Rule, RuleScope, Ruleset, replaced, rule
from postroom.worker.core.state import Merge, Scope, StateKey, Update
from postroom.worker.plugins.asking import ask, to_be_used
from postroom.worker.plugins.base import HookContext, Plugin, Registrar
from postroom.worker.tools.base import Approval

Plain = dict[str, Any]
ACTION = "tool:PermissionConfirm"


class PermissionRule(Contract):
    """A rule as it stands in settings; `tool` is a pattern."""

    tool: str
    behavior: Behavior
    scope: RuleScope = RuleScope.PROJECT

    @model_validator(mode="after")
    def _readable(self) -> "PermissionRule":
        self.rule()
        return self

    def rule(self) -> Rule:
        """What it means."""
        return rule(self.tool, self.behavior, self.scope)


class PermissionSection(Contract):
    """The agent's settings under `permission`; `expires_in` is how many seconds somebody has to answer."""

    default_behavior: Behavior = Behavior.ASK
    rules: tuple[PermissionRule, ...] = ()
    expires_in: float | None = Field(default=None, gt=0)
    on_expiry: Literal["deny", "stop"] = "deny"


def _changed(known: dict[str, Plain], update: Plain) -> dict[str, Plain]:
    gone = {rule(tool, Behavior.ASK).key for tool in update.get("remove", ())}
    added = [rule(**each) for each in update.get("set", ())]
    return {key: each for key, each in known.items() if key not in gone} | {each.key: each.as_plain() for each in added}


# Two calls of one step may both be allowed always: what they add does not depend on their order.
POLICY: StateKey[dict[str, Plain], Plain] = StateKey("permission_policy", {}, _changed, Scope.THREAD, Merge.COMMUTATIVE)
OVERRIDES: StateKey[dict[str, Plain], Plain] = StateKey(
    "permission_overrides", {}, _changed, Scope.RUN, Merge.COMMUTATIVE, persistent=False
)


def permit(tool: str, behavior: Behavior | str, scope: RuleScope = RuleScope.THREAD) -> Update:
    """Adds a rule to the thread. It stands beside the agent's rules, so a denial there is still a denial."""
    return POLICY.update({"set": [rule(tool, behavior, scope).as_plain()]})


def override(tool: str, behavior: Behavior | str) -> Update:
    """Puts a rule in place of every other of the same pattern while this activation of the run lasts."""
    return OVERRIDES.update({"set": [rule(tool, behavior, RuleScope.ONCE).as_plain()]})


def revoke(tool: str) -> Update:
    """Takes a rule of the thread away."""
    return POLICY.update({"remove": [tool]})


def rules(context: HookContext) -> Ruleset:
    """The rules that hold for a run."""
    section = context.config(PermissionSection)
    standing = (*(each.rule() for each in section.rules), *_stored(context.state[POLICY].values()))
    return Ruleset(section.default_behavior, replaced(standing, _stored(context.state[OVERRIDES].values())))


def _stored(plain: Iterable[Plain]) -> list[Rule]:
    return [rule(**each) for each in plain]


class Permission(Plugin):
    """Lets calls pass, ends runs whose calls are denied, asks about the others, and hides what can never be called."""

    id = "permission"
    section = PermissionSection

    def register(self, registrar: Registrar) -> None:
        """Keys, the gate, and hooks that hide tools and remember what was allowed always."""
        registrar.key(POLICY, OVERRIDES)
        registrar.gate(_gate)
        registrar.hook(Phase.BEFORE_INFERENCE, _hide)
        registrar.hook(Phase.BEFORE_TOOL_EXECUTE, _remember)
        # Once more with the outcome, which is journaled: a worker that dies takes along what hooks before it changed.
        registrar.hook(Phase.AFTER_TOOL_EXECUTE, _remember)


def _gate(context: HookContext) -> Intercept | None:
    call = context.call
    if call is None:
        return None
    known = rules(context)
    arguments = to_be_used(call)
    if isinstance(arguments, str):  # nobody need be asked about a call that cannot be carried out
        return _blocked(call) if known.denied([call.name]) else None
    verdict = known.evaluate(call.name, arguments)
    if verdict.behavior is Behavior.ALLOW:
        return None
    if verdict.behavior is Behavior.DENY:
        return _blocked(call)
    section = context.config(PermissionSection)
    question = Approval(
        f"May {call.name} be called?",
        # What "always" will allow is what the rule asked about, no more.
        action_key=verdict.rule.key if verdict.rule else call.name,
        expires_in=section.expires_in,
        on_expiry=section.on_expiry,
    )
    return ask(context, question, "perm", ACTION)


def _blocked(call: OpenCall) -> Block:
    return Block(f"Tool '{call.name}' denied by permission rules")


def _hide(context: HookContext) -> Command:
    return Command(actions=tuple(exclude_tool(name) for name in rules(context).denied(context.tools)))


def _remember(context: HookContext) -> Command:
    call = context.call
    if call is None or call.decision is None or call.ticket is None or call.ticket.action != ACTION:
        return NOTHING
    if call.decision.action is not DecisionAction.ALLOW_ALWAYS:
        return NOTHING
    return Command((permit(call.ticket.action_key or call.name, Behavior.ALLOW),))

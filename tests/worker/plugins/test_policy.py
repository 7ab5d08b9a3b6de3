"""Tool policies: what their verdicts do to a call."""

from typing import Any

from postroom.mailbox.contracts import DecisionAction, Risk
from postroom.worker.core.calls import Block, SetResult, Suspend
from postroom.worker.core.command import Effect, Phase
from postroom.worker.plugins.policy import AUDIT, Audit, Deny, Replace, Request, ToolPolicy
from postroom.worker.tools.base import Approval
from postroom.worker.tools.define import tool
from tests.worker.plugins.asking import Asked, call, decision, found


@tool(kind="execute")
def wipe() -> None: ...


def saying(verdict: Any) -> Asked:
    return Asked(ToolPolicy(lambda request: verdict))


def test_nothing_said_lets_the_call_pass() -> None:
    assert saying(None).gate(call("wipe")) is None


def test_a_denial_is_told_to_the_model_or_ends_the_run() -> None:
    told = saying(Deny("not on Sundays")).gate(call("wipe"))
    assert isinstance(told, SetResult)
    assert (told.outcome.message, told.outcome.metadata) == ("not on Sundays", {"denied": True})
    assert saying(Deny("never", stop=True)).gate(call("wipe")) == Block("never")


def test_a_result_in_place_of_the_call() -> None:
    answered = saying(Replace({"rows": (1, 2)}, "cached")).gate(call("wipe"))
    assert isinstance(answered, SetResult)
    assert (answered.outcome.data, answered.outcome.message) == ({"rows": [1, 2]}, "cached")


def test_somebody_is_asked_and_their_yes_lets_it_pass() -> None:
    known = saying(Approval("Wipe?", Risk.DESTRUCTIVE, expires_in=5))
    waiting = known.gate(call("wipe", {"all": True}))
    assert isinstance(waiting, Suspend)
    assert (waiting.ticket.id, waiting.ticket.message, waiting.ticket.risk) == ("policy_c", "Wipe?", Risk.DESTRUCTIVE)
    assert (waiting.ticket.arguments, waiting.ticket.expires_at) == ({"all": True}, 6000)
    assert known.gate(call("wipe", ticket=waiting.ticket, decision=decision(DecisionAction.ALLOW_ONCE))) is None


def test_the_strongest_of_several_counts() -> None:
    known = Asked(ToolPolicy(lambda _: Replace(1), lambda _: Deny("x", stop=True), lambda _: Approval()))
    assert isinstance(known.gate(call("wipe")), Block)


def test_a_policy_sees_the_call_and_may_be_async() -> None:
    seen: list[Request] = []

    async def look(request: Request) -> None:
        seen.append(request)

    changed = decision(DecisionAction.ALLOW_ONCE, arguments={"x": 2})
    Asked(ToolPolicy(look)).gate(call("wipe", {"x": 1}, decision=changed), tool=wipe, tenant="acme")
    assert seen == [Request("t", "r", "a", 2, "c", "wipe", "execute", {"x": 2}, "acme")]


def test_a_policy_that_fails_denies() -> None:
    denied = Asked(ToolPolicy(lambda request: 1 / 0)).gate(call("wipe"))  # type: ignore[arg-type,return-value]
    assert isinstance(denied, SetResult)
    assert denied.outcome.failed


def test_an_audited_call_happens_and_is_noted_without_its_arguments() -> None:
    notes: list[Any] = []
    known = Asked(ToolPolicy(lambda request: Audit("seen"), audit=notes.append))
    this = call("wipe", {"secret": "s"})
    assert known.gate(this) is None
    command = known.hooks(Phase.BEFORE_TOOL_EXECUTE, call=this, tool=wipe)
    note = {
        "thread": "t", "run": "r", "step": 2, "call": "c", "tool": "wipe", "kind": "execute", "agent": "a",
        "note": "seen",
    }  # fmt: skip
    assert command.effects == (Effect(AUDIT, note),)
    found(known.registrar.effects[AUDIT](command.effects[0].payload))
    assert notes == [note]
    assert not saying(None).hooks(Phase.BEFORE_TOOL_EXECUTE, call=this)

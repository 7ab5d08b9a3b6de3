"""Calls that somebody must decide about: on a real server, with no worker while they wait."""

from typing import Any

import pytest

from postroom.dispatcher import AsyncDispatcher
from postroom.mailbox.contracts import FrontendTool
from postroom.mailbox.errors import AlreadyDecided, NothingToRemember, TicketNotFound
from postroom.worker.app import Agent, App, Behaviour
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.tools import Approval, Suspend, Tool, ToolContext, tool
from tests.worker.loop.office import Office, in_order, valid

done: list[str] = []


@tool(needs_approval=lambda arguments: Approval(f"Pay {arguments['sum']}?", action_key=f"pay:{arguments['to']}"))
def pay(sum: int, to: str) -> str:  # noqa: A002 - a name a model would use
    """Pays."""
    done.append(f"{to}:{sum}")
    return f"paid {sum} to {to}"


@tool
def look() -> str:
    """Looks."""
    done.append("look")
    return "seen"


def _pay(to: str = "bob", amount: int = 5) -> dict[str, Any]:
    return {"name": "pay", "arguments": {"sum": amount, "to": to}}


def _office(url: str, script: list[Any], *tools: Tool, **behaviour: Any) -> Office:
    done.clear()
    agent = Agent("clerk", model=ScriptedModel(script), tools=tools or (pay, look), behaviour=Behaviour(**behaviour))
    return Office(url, App([agent]))


def _decide(office: Office, run: str, call: str, action: str, **more: Any) -> None:
    office.dispatcher.decide(run, call, action, **more)


def test_an_approval_is_waited_for_without_a_worker(server_url: str) -> None:
    with _office(server_url, [{"calls": [_pay()]}, "Done."]) as office:
        run = office.run()
        record = office.record(run)
        assert (record.status, record.waiting) == ("waiting", "approval")
        assert office.dispatcher.holder(office.thread) is None
        assert done == []
        told = office.events(run)
        in_order([event["type"] for event in told])
        ticket = told[-1]["tickets"][0]
        assert (ticket["tool"], ticket["arguments"]) == ("pay", {"sum": 5, "to": "bob"})
        assert ticket["action_key"] == "pay:bob"
        _decide(office, run, ticket["id"], "allow_once", by="ann")
        office.serve(run)
        assert done == ["bob:5"]
        assert office.words()[-2:] == [("tool", "paid 5 to bob"), ("assistant", "Done.")]
        types = office.types(run)
        in_order(types)
        assert "tool_call_resumed" in types
        valid(office.log())
        assert office.record(run).step == 2


def test_a_denied_call_gets_the_reason_and_its_siblings_go_on(server_url: str) -> None:
    with _office(server_url, [{"calls": [_pay(), {"name": "look"}]}, "I see."]) as office:
        run = office.run()
        assert done == ["look"]
        _decide(office, run, "call-1-1", "deny", reason="too much")
        office.serve(run)
        assert [words for role, words in office.words() if role == "tool"] == [
            "The call was denied: too much",
            "seen",
        ]
        assert done == ["look"], "a sibling that finished is never run again"
        assert office.record(run).termination.kind == "natural_end"
        valid(office.log())


def test_deny_and_stop(server_url: str) -> None:
    with _office(server_url, [{"calls": [_pay()]}]) as office:
        run = office.run()
        _decide(office, run, "call-1-1", "deny_and_stop", reason="fraud")
        office.serve(run)
        termination = office.record(run).termination
        assert (termination.kind, termination.code) == ("stopped", "denied")
        valid(office.log())
        in_order(office.types(run))


def test_allow_always_is_remembered_by_action_key_on_the_thread(server_url: str) -> None:
    script = [{"calls": [_pay()]}, "One.", {"calls": [_pay(amount=7)]}, "Two.", {"calls": [_pay("eve")]}, "Three."]
    with _office(server_url, script) as office:
        first = office.run()
        _decide(office, first, "call-1-1", "allow_always", by="ann")
        office.serve(first)
        second = office.run("again")
        assert office.record(second).status == "done"
        assert done == ["bob:5", "bob:7"]
        third = office.run("and eve")
        assert office.record(third).status == "waiting", "another key is another question"
        (grant,) = office.dispatcher.list_grants(office.thread)
        assert (grant.action_key, grant.tool, grant.by) == ("pay:bob", "pay", "ann")


def test_a_grant_can_be_taken_back(server_url: str) -> None:
    script = [{"calls": [_pay()]}, "One.", {"calls": [_pay(amount=7)]}]
    with _office(server_url, script) as office:
        first = office.run()
        _decide(office, first, "call-1-1", "allow_always")
        office.serve(first)
        assert office.dispatcher.revoke(office.thread, "pay:bob")
        assert not office.dispatcher.revoke(office.thread, "pay:bob")
        assert office.dispatcher.list_grants(office.thread) == []
        assert office.record(office.run("again")).status == "waiting"


def test_a_grant_taken_back_counts_for_a_run_under_way(server_url: str) -> None:
    @tool
    async def meanwhile(ctx: ToolContext) -> str:
        """Somebody changes their mind while this runs."""
        async with AsyncDispatcher(server_url) as dispatcher:
            await dispatcher.revoke(ctx.thread_id, "pay:bob")
        office.desk.revoke(ctx.run_id)
        return "ok"

    script = [{"calls": [_pay()]}, {"calls": [{"name": "meanwhile"}]}, {"calls": [_pay(amount=7)]}]
    with _office(server_url, script, pay, meanwhile) as office:
        run = office.run()
        _decide(office, run, "call-1-1", "allow_always")
        office.serve(run)
        assert office.record(run).status == "waiting"
        assert done == ["bob:5"]


def test_what_has_no_key_cannot_be_allowed_for_good(server_url: str) -> None:
    @tool(needs_approval=Approval("May I?"))
    def plain() -> str:
        """Needs approval, but has no key."""
        return "done"

    with _office(server_url, [{"calls": [{"name": "plain"}]}, "Ok."], plain) as office:
        run = office.run()
        with pytest.raises(NothingToRemember, match="no action key"):
            _decide(office, run, "call-1-1", "allow_always")
        assert office.record(run).status == "waiting"


def test_a_tool_of_the_client(server_url: str) -> None:
    with _office(server_url, [{"calls": [{"name": "locate", "arguments": {"exact": True}}]}, "Ok."]) as office:
        run = office.run(frontend_tools=[FrontendTool(name="locate", description="Where the user is.")])
        (ticket,) = office.events(run)[-1]["tickets"]
        assert (ticket["id"], ticket["action"]) == ("suspend_call-1-1", "tool:locate")
        assert ticket["resume_mode"] == "use_decision_as_tool_result"
        _decide(office, run, ticket["id"], "answer", result={"city": "Bern"})
        office.serve(run)
        assert office.words()[-2] == ("tool", '{"city":"Bern"}')


def test_edited_arguments_are_what_is_carried_out(server_url: str) -> None:
    with _office(server_url, [{"calls": [_pay()]}, "Done."]) as office:
        run = office.run()
        _decide(office, run, "call-1-1", "allow_once", arguments={"sum": 1, "to": "bob"})
        office.serve(run)
        assert done == ["bob:1"]


def test_edited_arguments_are_checked_too(server_url: str) -> None:
    with _office(server_url, [{"calls": [_pay()]}, "Done."]) as office:
        run = office.run()
        _decide(office, run, "call-1-1", "allow_once", arguments={"sum": "much", "to": "bob"})
        office.serve(run)
        assert done == []
        assert "cannot be called" in office.words()[-2][1]


def test_decisions_for_some_of_several_calls(server_url: str) -> None:
    with _office(server_url, [{"calls": [_pay("a"), _pay("b"), _pay("c")]}, "Done."]) as office:
        run = office.run()
        assert len(office.events(run)[-1]["tickets"]) == 3
        _decide(office, run, "call-1-2", "allow_once")
        office.serve(run)
        assert done == ["b:5"]
        assert office.record(run).status == "waiting"
        _decide(office, run, "call-1-1", "deny")
        _decide(office, run, "call-1-3", "allow_once")
        office.serve(run)
        assert done == ["b:5", "c:5"]
        results = [words for role, words in office.words() if role == "tool"]
        assert results == ["The call was denied.", "paid 5 to b", "paid 5 to c"]
        valid(office.log())
        in_order(office.types(run))


def test_the_first_decision_wins_and_a_stale_one_is_refused(server_url: str) -> None:
    with _office(server_url, [{"calls": [_pay()]}, "Done."]) as office:
        run = office.run()
        _decide(office, run, "call-1-1", "allow_once", decision_id="d1")
        _decide(office, run, "call-1-1", "allow_once", decision_id="d1")
        with pytest.raises(AlreadyDecided):
            _decide(office, run, "call-1-1", "deny", decision_id="d2")
        with pytest.raises(TicketNotFound):
            _decide(office, run, "nosuch", "deny")
        office.serve(run)
        assert done == ["bob:5"]


def test_a_tool_that_asks_and_gets_the_answer(server_url: str) -> None:
    @tool
    def order(what: str, ctx: ToolContext) -> Any:
        """Orders something."""
        if ctx.decision is None:
            return Suspend("How many?", response_schema={"type": "integer"})
        return f"{ctx.decision.result} x {what}"

    with _office(server_url, [{"calls": [{"name": "order", "arguments": {"what": "tea"}}]}, "Ok."], order) as office:
        run = office.run()
        assert office.record(run).status == "waiting"
        _decide(office, run, "call-1-1", "answer", result=3)
        office.serve(run)
        assert office.words()[-2] == ("tool", "3 x tea")


def test_a_tool_may_ask_again(server_url: str) -> None:
    @tool
    def sure(ctx: ToolContext) -> Any:
        """Asks until it hears yes."""
        said = ctx.decision.result if ctx.decision else None
        return "at last" if said == "yes" else Suspend(f"Sure? You said {said}.")

    with _office(server_url, [{"calls": [{"name": "sure"}]}, "Ok."], sure) as office:
        run = office.run()
        for answer in ("no", "maybe", "yes"):
            assert office.record(run).status == "waiting"
            _decide(office, run, "call-1-1", "answer", result=answer)
            office.serve(run)
        assert office.words()[-2] == ("tool", "at last")
        valid(office.log())
        in_order(office.types(run))


def test_one_after_the_other_a_suspension_interrupts_the_rest(server_url: str) -> None:
    @tool
    def ask(ctx: ToolContext) -> Any:
        """Asks."""
        return "answered" if ctx.decision else Suspend("?")

    script = [{"calls": [{"name": "look"}, {"name": "ask"}, {"name": "look"}]}, "Ok."]
    with _office(server_url, script, ask, look, parallel=1) as office:
        run = office.run()
        assert done == ["look"]
        _decide(office, run, "call-1-2", "answer", result=1)
        office.serve(run)
        results = [words for role, words in office.words() if role == "tool"]
        assert results == ["seen", "answered", "[Tool execution was interrupted]"]
        valid(office.log())


def test_nobody_decides_in_time(server_url: str) -> None:
    @tool(needs_approval=Approval("Now?", expires_in=0.01))
    def hurry() -> str:
        """Must be allowed soon."""
        return "done"

    with _office(server_url, [{"calls": [{"name": "hurry"}]}, "Pity."], hurry) as office:
        run = office.run()
        office.expire(run)
        office.serve(run)
        assert office.words()[-2] == ("tool", "The call was denied: nobody decided in time")
        assert "ticket_expired" in office.types(run)


def test_a_cancel_while_it_waits(server_url: str) -> None:
    with _office(server_url, [{"calls": [_pay(), {"name": "look"}]}]) as office:
        run = office.run()
        office.dispatcher.cancel(run)
        record = office.record(run)
        assert (record.status, record.termination.kind) == ("done", "cancelled")
        results = [words for role, words in office.words() if role == "tool"]
        assert results[1] == "seen"
        valid(office.log())
        in_order(office.types(run))

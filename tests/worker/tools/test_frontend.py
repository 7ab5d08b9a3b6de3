"""Frontend tools: the first call waits for the client, whose answer is the result."""

import pytest

from postroom.mailbox.contracts import Decision, DecisionAction, FrontendTool, ResumeMode, Ticket, parse
from postroom.mailbox.errors import InvalidInput
from postroom.worker.tools.frontend import frontend_tool
from tests.worker.tools.calling import called

PICK = frontend_tool(FrontendTool(name="pick_date", description="Shows a calendar."))


def test_the_client_is_asked() -> None:
    outcome = called(PICK, {"from": "today"})
    assert outcome.status == "pending"
    assert outcome.ticket is not None
    assert (outcome.ticket.id, outcome.ticket.action) == ("suspend_c", "tool:pick_date")
    assert outcome.ticket.arguments == {"from": "today"}
    assert outcome.ticket.resume_mode is ResumeMode.USE_DECISION_AS_TOOL_RESULT


def test_its_answer_is_the_result() -> None:
    ticket = called(PICK).ticket
    decision = Decision(id="d", target="suspend_c", action=DecisionAction.ANSWER, result="2026-01-02")
    outcome = called(PICK, {}, ticket=ticket, decision=decision)
    assert (outcome.status, outcome.data) == ("success", "2026-01-02")


def test_leave_to_ask_is_not_an_answer() -> None:
    leave = Ticket(id="perm_c", call_id="c", tool="pick_date")
    allowed = Decision(id="d", target="perm_c", action=DecisionAction.ALLOW_ONCE)
    assert called(PICK, {}, ticket=leave, decision=allowed).status == "pending"


def test_a_bad_descriptor_is_one_clear_line() -> None:
    with pytest.raises(InvalidInput, match="tool 'pick date' must be 1 to 128 letters"):
        parse(FrontendTool, {"name": "pick date"})

"""Decisions: durable, first wins, all or none, and a retry is no second decision."""

import pytest

from postroom.mailbox import approvals, keys, records
from postroom.mailbox.commit import Batch, Owner
from postroom.mailbox.contracts import Decision
from postroom.mailbox.errors import AlreadyDecided, RunDone, RunNotFound, TicketExpired, TicketNotFound
from postroom.mailbox.lifecycle import CallStatus, WaitingReason
from tests.mailbox.desk import Desk


def asked(desk: Desk, calls: tuple[str, ...] = ("c1", "c2"), expires_in: int | None = None) -> Owner:
    """A run that waits for approval of its calls."""
    owner = desk.started()
    batch = Batch(1, step=1)
    expires_at = None if expires_in is None else desk.now + expires_in
    for index, call in enumerate(calls):
        ticket = {"id": f"k-{call}", "call_id": call, "tool": "pay", "expires_at": expires_at}
        batch.raise_ticket(call, ticket)
        batch.calls[f"index:{call}"] = index
    wake = None if expires_at is None else expires_at + 1
    assert desk.suspend(owner, WaitingReason.APPROVAL, wake, batch).outcome == "waiting"
    return owner


def decision(target: str, decision_id: str = "d", action: str = "allow_once") -> Decision:
    return Decision.model_validate({"id": decision_id, "target": target, "action": action, "by": "ann"})


@pytest.mark.parametrize("target", ["c1", "k-c1"])
def test_a_decision_wakes_the_run_and_is_there_when_it_is_claimed(desk: Desk, target: str) -> None:
    owner = asked(desk)
    decided = desk.decide(owner.run_id, target)
    assert (decided.outcome, decided.run_status) == ("accepted", "queued")
    assert decided.doorbell is not None
    first, second = records.call_records(desk.claim(owner.run_id).calls)
    assert (first.call_id, first.ticket_status, first.decision and first.decision.action) == (
        "c1",
        "decided",
        "allow_once",
    )
    assert (second.call_id, second.status, second.ticket_status, second.decision) == ("c2", "suspended", "open", None)


def test_the_first_decision_wins_and_the_same_one_again_is_no_second(desk: Desk) -> None:
    owner = asked(desk)
    desk.decide(owner.run_id, "c1", "d1", "deny")
    assert desk.decide(owner.run_id, "c1", "d1", "deny").outcome == "again"
    with pytest.raises(AlreadyDecided, match="deny d1"):
        desk.decide(owner.run_id, "k-c1", "d2", "allow_once")
    received = [event for event in desk.events(owner.run_id) if event["type"] == "decision_received"]
    assert [(event["id"], event["action"]) for event in received] == [("d1", "deny")]


def test_a_retry_after_the_run_has_ended_still_hears_that_it_was_accepted(desk: Desk) -> None:
    owner = asked(desk, ("c1",))
    desk.decide(owner.run_id, "c1", "d1")
    owner = desk.owner(owner.run_id, desk.claim(owner.run_id).fence)
    desk.finish(owner)
    assert desk.decide(owner.run_id, "c1", "d1").outcome == "again"
    with pytest.raises(RunDone, match=owner.run_id):
        desk.decide(owner.run_id, "c1", "d2")


def test_unknown_targets_and_runs_are_refused_and_the_run_stays_parked(desk: Desk) -> None:
    owner = asked(desk)
    with pytest.raises(TicketNotFound, match="c9"):
        desk.decide(owner.run_id, "c9")
    with pytest.raises(RunNotFound):
        desk.decide("ghost", "c1")
    assert desk.status(owner.run_id) == "waiting"


def test_a_batch_is_taken_whole_or_not_at_all(desk: Desk) -> None:
    owner = asked(desk)

    def decide(*batch: Decision) -> approvals.Decided:
        return desk.run(approvals.decide(desk.thread, owner.run_id, batch, now=desk.now))

    with pytest.raises(TicketNotFound):
        decide(decision("c1", "d1"), decision("c9", "d9"))
    with pytest.raises(AlreadyDecided):
        decide(decision("c1", "d1"), decision("k-c1", "d2"))
    assert desk.status(owner.run_id) == "waiting"
    assert decide(decision("c1", "d1"), decision("c2", "d2")).outcome == "accepted"
    assert decide(decision("c2", "d2"), decision("c1", "d1")).outcome == "again"


def test_a_decision_for_a_working_run_is_found_when_it_would_wait(desk: Desk) -> None:
    owner = desk.started()
    ticket = {"id": "k", "call_id": "c1", "tool": "pay"}
    desk.commit(owner, Batch(1, step=1).raise_ticket("c1", ticket))
    assert desk.decide(owner.run_id, "k").run_status == "running"
    assert desk.renew(owner).decisions == 1
    assert desk.suspend(owner, WaitingReason.APPROVAL).outcome == "continue"


def test_a_call_may_be_suspended_again_with_a_new_ticket(desk: Desk) -> None:
    owner = asked(desk, ("c1",))
    desk.decide(owner.run_id, "c1", "d1")
    owner = desk.owner(owner.run_id, desk.claim(owner.run_id).fence)
    desk.commit(owner, Batch(2).note_call("c1", CallStatus.RESUMING))
    batch = Batch(3).raise_ticket("c1", {"id": "k2", "call_id": "c1", "tool": "pay"})
    assert desk.suspend(owner, WaitingReason.APPROVAL, batch=batch).outcome == "waiting"
    assert desk.decide(owner.run_id, "k2", "d2").outcome == "accepted"


def test_a_ticket_expires_strictly_after_its_time_and_wakes_the_run(desk: Desk) -> None:
    owner = asked(desk, ("c1",), expires_in=1000)
    desk.now += 1000
    assert desk.look().doorbell is None
    assert desk.status(owner.run_id) == "waiting"
    desk.now += 1
    with pytest.raises(TicketExpired, match="expired"):
        desk.decide(owner.run_id, "c1")
    bell = desk.look().doorbell
    assert bell is not None
    assert desk.client.hget(keys.calls(desk.thread, owner.run_id), "ticket:c1") == b"expired"
    with pytest.raises(TicketExpired):
        desk.decide(owner.run_id, "c1")
    assert "ticket_expired" in [event["type"] for event in desk.events(owner.run_id)]


def test_a_decision_at_the_last_moment_counts(desk: Desk) -> None:
    owner = asked(desk, ("c1",), expires_in=1000)
    desk.now += 1000
    assert desk.decide(owner.run_id, "c1").outcome == "accepted"
    desk.now += 5000
    desk.look()
    assert desk.client.hget(keys.calls(desk.thread, owner.run_id), "ticket:c1") == b"decided"


def test_an_answer_to_an_old_ticket_does_not_decide_the_new_one(desk: Desk) -> None:
    owner = asked(desk, ("c1",), expires_in=1000)
    desk.decide(owner.run_id, "k-c1", "d1")
    owner = desk.owner(owner.run_id, desk.claim(owner.run_id).fence)
    desk.commit(owner, Batch(2).note_call("c1", CallStatus.RESUMING))
    batch = Batch(3).raise_ticket("c1", {"id": "k-new", "call_id": "c1", "tool": "pay"})
    desk.suspend(owner, WaitingReason.APPROVAL, batch=batch)
    with pytest.raises(TicketNotFound, match="k-c1"):
        desk.decide(owner.run_id, "k-c1", "d2")
    desk.now += 5000  # the old ticket's time is over, the new one has none
    assert desk.decide(owner.run_id, "k-new", "d3").outcome == "accepted"


def test_a_ticket_expires_even_if_its_worker_named_no_time_to_wake(desk: Desk) -> None:
    owner = desk.started()
    ticket = {"id": "k", "call_id": "c1", "tool": "pay", "expires_at": desk.now + 1000}
    desk.suspend(owner, WaitingReason.APPROVAL, batch=Batch(1).raise_ticket("c1", ticket))
    desk.now += 1001
    assert desk.look().doorbell is not None
    assert desk.status(owner.run_id) == "queued"


def test_a_ticket_named_like_another_call_is_not_mistaken_for_it(desk: Desk) -> None:
    owner = desk.started()
    batch = Batch(1).raise_ticket("c1", {"id": "k1", "call_id": "c1", "tool": "pay"})
    batch.raise_ticket("c2", {"id": "c1", "call_id": "c2", "tool": "rm"})
    desk.suspend(owner, WaitingReason.APPROVAL, batch=batch)
    desk.decide(owner.run_id, "c1", "d1")
    calls = keys.calls(desk.thread, owner.run_id)
    assert desk.client.hmget(calls, "ticket:c1", "ticket:c2") == [b"decided", b"open"]


def test_a_decision_id_belongs_to_one_ticket(desk: Desk) -> None:
    owner = asked(desk)
    desk.decide(owner.run_id, "c1", "same")
    with pytest.raises(AlreadyDecided, match="use another id"):
        desk.decide(owner.run_id, "c2", "same")

"""Errands: written by the commit they belong to, settled by whoever carries them out, never forgotten in between."""

from typing import Any

import pytest

from postroom.mailbox import commit, errands, keys, lane, relay
from postroom.mailbox.commit import Owner
from postroom.mailbox.contracts import Parent
from postroom.mailbox.errands import Errand, Kind
from postroom.mailbox.errors import FenceLost, RunDone, ThreadBusy
from postroom.mailbox.lifecycle import WaitingReason
from tests.mailbox.desk import Desk


def letter(name: str, to: str = "other") -> Errand:
    return Errand(Kind.MAIL, name, to, body={"id": name, "thread_id": to})


def waiting(desk: Desk) -> list[Errand]:
    return errands.read(desk.run(errands.waiting(desk.thread)), desk.run(errands.put_off(desk.thread)))


def child_of(desk: Desk, reports: str = "answer") -> Owner:
    parent = Parent.model_validate({"thread_id": "parent", "run_id": "p1", "call_id": "c1", "reports": reports})
    return desk.started(parent=parent)


def test_an_errand_is_written_with_its_commit(desk: Desk) -> None:
    owner = desk.started()
    arrivals = desk.commit(owner, desk.batch(owner).send(letter("m1")).send(letter("m2")))
    assert arrivals.outbox == 2
    assert [(each.id, each.to, each.kind, each.body["id"]) for each in waiting(desk)] == [
        ("m1", "other", "mail", "m1"),
        ("m2", "other", "mail", "m2"),
    ]
    assert desk.client.get(keys.sent("m1")).decode().split("\n") == [desk.thread, "other"]


def test_a_commit_that_is_refused_sends_nothing(desk: Desk) -> None:
    owner = desk.started()
    stale = Owner(owner.thread_id, owner.run_id, owner.fence - 1)
    with pytest.raises(FenceLost):
        desk.commit(stale, desk.batch(owner).send(letter(f"m-{desk.tag}")))
    assert waiting(desk) == []
    assert not desk.client.exists(keys.sent(f"m-{desk.tag}"))


def test_a_commit_repeated_sends_once(desk: Desk) -> None:
    owner = desk.started()
    batch = desk.batch(owner).send(letter("m1"))
    desk.commit(owner, batch)
    assert desk.commit(owner, batch).outcome == "again"
    assert len(waiting(desk)) == 1


def test_a_thread_with_errands_stays_on_the_watch_list_until_they_are_carried_out(desk: Desk) -> None:
    owner = desk.started()
    assert desk.finish(owner, batch=desk.batch(owner).send(letter("m1"))).outbox == 1
    assert desk.watched() == desk.now
    look = desk.look()
    assert look.errands
    assert look.again > desk.now
    assert desk.run(errands.settle(desk.thread, [1], now=desk.now)) == 0
    desk.now = look.again
    assert not desk.look().errands
    assert desk.watched() is None
    assert not desk.client.exists(keys.outbox(desk.thread))


def test_numbers_go_on_after_the_outbox_was_empty(desk: Desk) -> None:
    owner = desk.started()
    desk.commit(owner, desk.batch(owner).send(letter("m1")))
    desk.run(errands.settle(desk.thread, [1], now=desk.now))
    desk.commit(owner, desk.batch(owner).send(letter("m2")))
    assert [each.number for each in waiting(desk)] == [2]


def test_what_is_put_off_is_looked_for_when_it_is_due(desk: Desk) -> None:
    owner = desk.started()
    desk.finish(owner, batch=desk.batch(owner).send(letter("m1")))
    for tries in (1, 2):
        assert desk.run(errands.settle(desk.thread, later=[(1, 700)], now=desk.now)) == 1
        assert [(each.tries, each.due) for each in waiting(desk)] == [(tries, desk.now + 700)]
    assert not desk.look().errands
    assert desk.watched() == desk.now + 700
    desk.now += 700
    assert desk.look().errands


def test_what_is_given_up_is_kept_with_the_reason_and_can_be_tried_again(desk: Desk) -> None:
    owner = desk.started()
    desk.finish(owner, batch=desk.batch(owner).send(letter("m1")).send(letter("m2")))
    assert desk.run(errands.settle(desk.thread, lost=[(2, "no such thread"), (1, "full")], now=desk.now)) == 0
    lost = desk.run(errands.undelivered(desk.thread))
    assert [(each.error, each.errand.id) for each in lost] == [("no such thread", "m2"), ("full", "m1")]
    assert desk.client.zscore(keys.STRANDED, desk.thread) is not None
    assert desk.run(errands.replay(desk.thread, [lost[0].place], now=desk.now)) == 1
    assert [(each.id, each.body["id"]) for each in waiting(desk)] == [("m2", "m2")]
    assert desk.look().errands
    assert desk.run(errands.clear(desk.thread, now=desk.now)) == 1
    assert desk.run(errands.undelivered(desk.thread)) == []
    assert desk.client.zscore(keys.STRANDED, desk.thread) is None


def test_what_somebody_else_has_settled_is_left_alone(desk: Desk) -> None:
    owner = desk.started()
    desk.finish(owner, batch=desk.batch(owner).send(letter("m1")))
    desk.run(errands.settle(desk.thread, [1], now=desk.now))
    assert desk.run(errands.settle(desk.thread, [1], [(1, 5)], [(1, "no")], now=desk.now)) == 0
    assert desk.run(errands.undelivered(desk.thread)) == []


def test_a_thread_with_errands_cannot_be_deleted(desk: Desk) -> None:
    owner = desk.started()
    desk.finish(owner, batch=desk.batch(owner).send(letter("m1")))
    with pytest.raises(ThreadBusy, match="errands"):
        desk.run(lane.delete(desk.thread, now=desk.now))


@pytest.mark.parametrize("how", ["finish", "cancel", "deadline", "dead", "superseded"])
def test_the_end_of_a_child_is_reported_on_every_path(desk: Desk, how: str) -> None:
    owner = child_of(desk)
    if how == "finish":
        assert desk.finish(owner).outbox == 1
    elif how == "cancel":
        desk.suspend(owner, WaitingReason.TASKS)
        desk.cancel(owner.run_id)
    elif how == "deadline":
        desk.client.zadd(keys.timers(desk.thread), {f"deadline {owner.run_id}": desk.now - 1})
        desk.look("w1")
    elif how == "superseded":
        desk.suspend(owner, WaitingReason.TASKS)
        desk.submit()
    else:
        for _ in range(desk.settings.max_attempts - 1):
            desk.look("w1")
            desk.claim(owner.run_id)
        desk.look("w1")
    assert desk.status(owner.run_id) == "done"
    (errand,) = waiting(desk)
    assert (errand.kind, errand.run, errand.to) == ("report", owner.run_id, "parent")
    reported = desk.events(owner.run_id)[errand.event - 1]
    assert reported["type"] == "run_finish"


def test_a_child_that_waits_for_a_person_is_reported(desk: Desk) -> None:
    owner = child_of(desk)
    assert desk.suspend(owner, WaitingReason.APPROVAL).outbox == 1
    (errand,) = waiting(desk)
    assert desk.events(owner.run_id)[errand.event - 1]["type"] == "run_waiting"


def test_a_run_without_a_parent_to_report_to_reports_nothing(desk: Desk) -> None:
    owner = desk.started(parent=Parent(thread_id="parent", run_id="p1"))
    assert desk.finish(owner).outbox == 0


def begets(desk: Desk, owner: Owner, **children: str) -> None:
    batch = desk.batch(owner)
    for run, how in children.items():
        batch.send(Errand(Kind.SUBMIT, run, f"thread of {run}", run, {"run_id": run}, child=how))
    desk.commit(owner, batch)
    desk.run(errands.settle(desk.thread, range(1, len(children) + 1), now=desk.now))


def cancelled(desk: Desk) -> dict[str, str]:
    found = {each.run: each.to for each in waiting(desk) if each.kind is Kind.CANCEL and each.code == "parent_ended"}
    assert len(found) == len(waiting(desk))
    return found


@pytest.mark.parametrize(
    ("kind", "stops"), [("natural_end", False), ("cancelled", True), ("error", True), ("behavior_requested", True)]
)
def test_a_run_that_does_not_come_to_its_own_end_takes_its_children_along(desk: Desk, kind: str, stops: bool) -> None:
    owner = desk.started()
    begets(desk, owner, one="answer", two="mail")
    desk.finish(owner, kind)
    assert cancelled(desk) == ({"one": "thread of one", "two": "thread of two"} if stops else {})


def test_a_child_that_is_settled_is_not_stopped(desk: Desk) -> None:
    owner = desk.started()
    begets(desk, owner, one="answer", two="answer")
    batch = desk.batch(owner)
    batch.children_dropped.append("one")
    desk.commit(owner, batch)
    desk.finish(owner, "cancelled")
    assert list(cancelled(desk)) == ["two"]


def test_newer_words_stop_what_a_call_waits_for_but_not_what_works_for_the_thread(desk: Desk) -> None:
    owner = desk.started()
    begets(desk, owner, one="answer", two="mail")
    desk.suspend(owner, WaitingReason.TASKS)
    desk.submit()
    assert desk.status(owner.run_id) == "done"
    assert list(cancelled(desk)) == ["one"]


def test_a_child_born_in_the_last_step_is_stopped_too(desk: Desk) -> None:
    owner = desk.started()
    errand = Errand(Kind.SUBMIT, "one", "there", "one", {"run_id": "one"}, child="mail")
    desk.finish(owner, "stopped", batch=desk.batch(owner).send(errand))
    assert [each.kind.value for each in waiting(desk)] == ["submit", "cancel"]


def test_who_was_stopped_by_its_parent_does_not_report(desk: Desk) -> None:
    owner = child_of(desk, "mail")
    desk.suspend(owner, WaitingReason.TASKS)
    desk.run(lane.cancel(desk.thread, owner.run_id, "parent_ended", now=desk.now))
    assert desk.status(owner.run_id) == "done"
    assert waiting(desk) == []


def test_mail_that_a_child_left_unread_starts_no_run(desk: Desk) -> None:
    owner = child_of(desk)
    desk.send()
    desk.finish(owner, "cancelled")
    assert desk.client.hget(keys.thread(desk.thread), "open") == b""
    assert desk.client.zcard(keys.lane(desk.thread)) == 0


def test_mail_for_one_run_is_refused_once_it_has_ended(desk: Desk) -> None:
    owner = desk.started()
    assert desk.send("m1", run_id=owner.run_id).outcome == "accepted"
    desk.finish(owner, "stopped")
    with pytest.raises(RunDone):
        desk.send("m2", run_id=owner.run_id)


def test_mail_does_not_wake_a_run_whose_calls_are_open(desk: Desk) -> None:
    owner = desk.started()
    ticket = {"id": "delegate_run:x", "call_id": "c1", "tool": "agent_run_x"}
    batch = desk.batch(owner).raise_ticket("c1", ticket)
    assert desk.suspend(owner, WaitingReason.TASKS, batch=batch).outcome == "waiting"
    desk.send("m1")
    assert desk.status(owner.run_id) == "waiting"
    desk.decide(owner.run_id, "c1")
    owner = desk.owner(owner.run_id, desk.claim(owner.run_id).fence)
    settled: Any = desk.batch(owner)
    settled.clear_calls = True
    assert desk.run(commit.suspend(owner, settled, WaitingReason.TASKS, now=desk.now)).outcome == "continue"


def test_events_of_a_child_are_told_until_its_parent_ends(desk: Desk) -> None:
    owner = desk.started()
    told = relay.child_event("child", "there", "helper", "c1", {"type": "text_delta", "delta": "hi"})
    assert desk.run(relay.relay(desk.thread, owner.run_id, [told, told], now=desk.now)) == 2
    assert desk.events(owner.run_id)[-1]["event"]["delta"] == "hi"
    desk.commit(owner, desk.batch(owner).tell({"type": "step_start"}))
    desk.finish(owner)
    assert desk.run(relay.relay(desk.thread, owner.run_id, [told], now=desk.now)) == 0
    assert [event["type"] for event in desk.events(owner.run_id)] == [
        "child_event", "child_event", "step_start", "run_finish"
    ]  # fmt: skip

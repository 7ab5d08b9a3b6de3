"""Carrying errands out: in order to each recipient, once, put off when refused for now, kept when refused for good."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from postroom.dispatcher import Dispatcher
from postroom.dispatcher import errands as carrying
from postroom.mailbox import commit, errands, lock, ops, watch
from postroom.mailbox.commit import Batch, Owner
from postroom.mailbox.contracts import Letter, Parent, RunRequest, message
from postroom.mailbox.errands import Errand, Kind
from postroom.mailbox.lifecycle import WaitingReason
from postroom.mailbox.settings import Settings


class Sender:
    """A run on a thread of its own that owes errands."""

    def __init__(self, url: str) -> None:
        self.tag = uuid.uuid4().hex[:10]
        self.client = Dispatcher(url, Settings(max_mail=3))
        self.thread = f"sender-{self.tag}"
        self.owner = self.started(self.thread)
        self.commits = 0

    def started(self, thread: str, **more: Any) -> Owner:
        run = self.client.submit("clerk", "hello", thread=thread, queue=self.tag, **more).run_id
        claim = ops.run(self.client.client, lock.claim(thread, run, "w1", 60_000))
        return Owner(thread, run, claim.fence)

    def mail(self, name: str, to: str, **more: Any) -> Errand:
        body = Letter(id=name, thread_id=to, message=message("user", name), queue=self.tag, **more)
        return Errand(Kind.MAIL, name, to, body=body.as_dict())

    def owe(self, *owed: Errand) -> None:
        self.commits += 1
        batch = Batch(self.commits)
        for errand in owed:
            batch.send(errand)
        ops.run(self.client.client, commit.commit(self.owner, batch))

    def read(self, thread: str) -> list[str]:
        return [mail.id for mail in self.client.unread(thread)]

    def left(self) -> list[Errand]:
        raw, held = ops.run_all(self.client.client, [errands.waiting(self.thread), errands.put_off(self.thread)])
        return errands.read(raw, held)


@pytest.fixture
def sender(server_url: str) -> Iterator[Sender]:
    made = Sender(server_url)
    yield made
    made.client.close()


def test_mail_arrives_in_order_and_once(sender: Sender) -> None:
    here, there = f"here-{sender.tag}", f"there-{sender.tag}"
    sender.owe(
        sender.mail("a1", here, agent="clerk"),
        sender.mail("b1", there, agent="clerk"),
        sender.mail("a2", here),
        sender.mail("a3", here),
    )
    assert sender.client.carry_out(sender.thread) == 0
    assert sender.client.carry_out(sender.thread) == 0
    assert sender.read(here) == ["a1", "a2", "a3"]
    assert sender.read(there) == ["b1"]


def test_carrying_out_twice_at_the_same_time_delivers_once(sender: Sender) -> None:
    here = f"here-{sender.tag}"
    sender.owe(*(sender.mail(f"m{i}", here, agent="clerk") for i in range(3)))
    plans = [carrying.carry_out(sender.client.settings, sender.thread) for _ in range(2)]
    wanted: dict[Any, Any] = {plan: next(plan) for plan in plans}
    while wanted:
        for plan, asked in list(wanted.items()):
            try:
                wanted[plan] = plan.send(ops.run_all(sender.client.client, asked) if asked else [])
            except StopIteration:
                del wanted[plan]
    assert sender.read(here) == ["m0", "m1", "m2"]
    assert sender.left() == []


def test_a_full_mailbox_keeps_what_is_behind_in_order(sender: Sender) -> None:
    full, other = f"full-{sender.tag}", f"other-{sender.tag}"
    sender.owe(*(sender.mail(f"m{i}", full, agent="clerk") for i in range(5)), sender.mail("o", other, agent="clerk"))
    assert sender.client.carry_out(sender.thread) == 2
    assert sender.read(full) == ["m0", "m1", "m2"]
    assert sender.read(other) == ["o"]
    assert [(each.id, each.tries) for each in sender.left()] == [("m3", 1), ("m4", 0)]
    # It is not tried before its time, whoever comes along.
    assert sender.client.carry_out(sender.thread) == 2
    assert sender.left()[0].tries == 1
    due = sender.left()[0].due
    look = ops.run(sender.client.client, watch.reclaim(sender.thread, 5, now=due))
    assert look.errands


def test_what_stays_refused_is_given_up_at_last(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "FIRST_WAIT_MS", 0)
    full = f"full-{sender.tag}"
    sender.owe(*(sender.mail(f"m{i}", full, agent="clerk") for i in range(4)))
    tried = 0
    while sender.client.carry_out(sender.thread):
        tried += 1
    assert tried == carrying.MOST_TRIES - 1
    (lost,) = sender.client.list_lost(sender.thread)
    assert lost.errand.id == "m3"
    assert lost.error.startswith("mailbox_full: ")
    assert sender.thread in sender.client.list_stranded(limit=200).items


def test_mail_to_nowhere_is_kept_and_can_be_replayed(sender: Sender) -> None:
    nowhere = f"nowhere-{sender.tag}"
    sender.owe(sender.mail("m1", nowhere))
    assert sender.client.carry_out(sender.thread) == 0
    (lost,) = sender.client.list_lost(sender.thread)
    assert lost.error.startswith("thread_not_found: ")
    sender.client.submit("clerk", "now it is there", thread=nowhere, queue=sender.tag)
    assert sender.client.replay_lost(sender.thread) == 1
    assert sender.client.carry_out(sender.thread) == 0
    assert sender.read(nowhere) == ["m1"]
    assert sender.client.list_lost(sender.thread) == []


def test_a_cancel_goes_down_a_tree_of_waiting_runs(sender: Sender) -> None:
    """Nobody works on any of them, so nobody but the carrier could pass it on."""
    middle, leaf = f"middle-{sender.tag}", f"leaf-{sender.tag}"
    leaf_owner = sender.started(leaf)
    ops.run(sender.client.client, commit.suspend(leaf_owner, Batch(1), WaitingReason.INPUT))
    middle_owner = sender.started(middle)
    child = Errand(Kind.SUBMIT, leaf_owner.run_id, leaf, leaf_owner.run_id, {"x": 1}, child="answer")
    batch = Batch(1)
    batch.send(child)
    ops.run(sender.client.client, commit.suspend(middle_owner, batch, WaitingReason.TASKS))
    ops.run(sender.client.client, errands.settle(middle, [1]))
    sender.owe(Errand(Kind.CANCEL, middle_owner.run_id, middle, middle_owner.run_id, code="parent_ended"))
    sender.client.carry_out(sender.thread)
    assert sender.client.get_run(middle_owner.run_id).status == "done"
    assert sender.client.get_run(leaf_owner.run_id).termination.code == "parent_ended"  # type: ignore[union-attr]


def test_a_child_that_cannot_be_started_has_failed(sender: Sender) -> None:
    taken = sender.client.submit("clerk", "mine", thread=f"taken-{sender.tag}", queue=sender.tag).run_id
    parent = Parent(thread_id=sender.thread, run_id=sender.owner.run_id, reports="mail")
    request = RunRequest(run_id=taken, thread_id=f"new-{sender.tag}", agent="clerk", parent=parent)
    sender.owe(Errand(Kind.SUBMIT, taken, request.thread_id, taken, request.as_dict(), child="mail"))
    assert sender.client.carry_out(sender.thread) == 0
    (mail,) = sender.client.unread(sender.thread)
    assert mail.message["metadata"]["task_event"]["kind"] == "failed"
    assert "in use" in mail.message["metadata"]["task_event"]["error"]

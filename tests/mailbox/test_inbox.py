"""Mail: delivered once, to the run that is there or to one it starts, never lost."""

import pytest

from postroom.mailbox import inbox
from postroom.mailbox.errors import MailboxFull, ThreadNotFound
from postroom.mailbox.lifecycle import WaitingReason
from postroom.mailbox.settings import Settings
from tests.mailbox.desk import LEASE, Desk


def test_mail_to_an_unknown_thread_needs_an_agent(desk: Desk) -> None:
    with pytest.raises(ThreadNotFound, match="name an agent"):
        desk.send()
    receipt = desk.send(agent="clerk")
    assert receipt.doorbell is not None
    claim = desk.claim(receipt.run_id)
    assert (claim.run["agent"], [mail.id for mail in claim.mail]) == (b"clerk", ["m1"])


def test_mail_to_an_idle_thread_starts_a_run_of_its_agent(desk: Desk) -> None:
    desk.finish(desk.started(agent="editor"))
    receipt = desk.send(agent="clerk")
    assert desk.record(receipt.run_id).agent == "editor"
    assert desk.ttl(f"postroom:{{{desk.thread}}}:thread") == -1


def test_mail_sent_twice_arrives_once(desk: Desk) -> None:
    first = desk.send(agent="clerk")
    again = desk.send(agent="clerk")
    assert (again.outcome, again.number, again.run_id, again.doorbell) == ("again", 1, first.run_id, None)
    assert len(desk.run(inbox.unread(desk.thread))) == 1


def test_mail_for_a_queued_run_waits_for_it(desk: Desk) -> None:
    run_id = desk.submit().run_id
    receipt = desk.send()
    assert (receipt.run_id, receipt.doorbell) == (run_id, None)
    assert len(desk.claim(run_id).mail) == 1


@pytest.mark.parametrize("reason", list(WaitingReason))
def test_mail_wakes_a_run_that_waits_for_words_or_tasks(desk: Desk, reason: WaitingReason) -> None:
    owner = desk.started()
    desk.suspend(owner, reason, wake=desk.now + 9000 if reason is WaitingReason.TIME else None)
    receipt = desk.send()
    wakes = reason in {WaitingReason.INPUT, WaitingReason.TASKS}
    assert receipt.run_id == owner.run_id
    assert (receipt.doorbell is not None) is wakes
    assert desk.status(owner.run_id) == ("queued" if wakes else "waiting")


def test_a_full_mailbox_says_so(desk: Desk) -> None:
    desk.settings = Settings(max_mail=2)
    desk.started()
    desk.send("a")
    desk.send("b")
    with pytest.raises(MailboxFull, match="2"):
        desk.send("c")
    assert desk.send("b").outcome == "again"


def test_mail_keeps_its_order(desk: Desk) -> None:
    owner = desk.started()
    for i in range(30):
        desk.send(f"m{i}", f"word {i}")
    assert [mail.id for mail in desk.commit(owner).mail] == [f"m{i}" for i in range(30)]


def test_mail_that_kills_its_reader_is_not_given_to_another_for_ever(desk: Desk) -> None:
    run_id = desk.send("poison", agent="clerk").run_id
    for _ in range(5):
        desk.claim(run_id)
        desk.now += LEASE + 1
        look = desk.look()
    assert look.dead == run_id
    assert look.doorbell is None
    assert [mail.id for mail in desk.run(inbox.unread(desk.thread))] == ["poison"]  # kept for whoever comes next
    fresh = desk.send("more").run_id
    assert [mail.id for mail in desk.claim(fresh).mail] == ["poison", "more"]

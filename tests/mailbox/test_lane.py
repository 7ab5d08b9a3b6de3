"""Submit, cancel, interrupt: the five ways to meet a busy thread, and what a retry finds."""

import pytest

from postroom.mailbox import inbox, keys, lane, log
from postroom.mailbox.commit import Batch
from postroom.mailbox.contracts import message
from postroom.mailbox.errors import (
    InvalidInput,
    LaneFull,
    MailboxFull,
    NothingToDo,
    RunNotFound,
    ThreadBusy,
    ThreadNotFound,
)
from postroom.mailbox.lifecycle import WaitingReason
from postroom.mailbox.settings import Settings
from tests.mailbox.desk import LEASE, Desk


def test_an_accepted_run_is_in_every_index_and_on_the_watch_list(desk: Desk) -> None:
    run_id = desk.submit("hello", metadata={"a": 1}, tenant="acme").run_id
    record = desk.record(run_id)
    assert (record.status, record.agent, record.tenant, record.epoch) == ("queued", "clerk", "acme", 0)
    assert record.request["messages"][0]["content"][0]["text"] == "hello"
    assert record.request["metadata"] == {"a": 1}
    assert desk.client.get(keys.run_index(run_id)) == desk.thread.encode()
    assert desk.client.zscore(keys.RUNS, run_id) == desk.now
    assert desk.client.zscore(keys.THREADS, desk.thread) == desk.now
    assert desk.watched() == desk.now + 5_000


def test_the_same_run_id_again_changes_nothing(desk: Desk) -> None:
    first = desk.submit(run_id="once-" + desk.tag)
    desk.now += 10
    again = desk.submit(run_id=first.run_id, on_busy="interrupt")
    assert (again.outcome, again.run_id, again.ended) == ("again", first.run_id, [])
    assert desk.status(first.run_id) == "queued"


def test_an_idempotency_key_holds_while_the_run_lives_and_a_while_after(desk: Desk) -> None:
    owner = desk.started(idempotency_key="order 7")
    assert desk.ttl(keys.dedupe_run(desk.thread, "order 7")) == -1
    assert desk.submit(idempotency_key="order 7").run_id == owner.run_id
    desk.finish(owner)
    assert desk.submit(idempotency_key="order 7").outcome == "again"
    assert 0 < desk.ttl(keys.dedupe_run(desk.thread, "order 7")) <= desk.settings.dedupe_ms


def test_a_run_ending_late_does_not_touch_a_key_that_is_anothers_now(desk: Desk) -> None:
    owner = desk.started(idempotency_key="k")
    desk.client.set(keys.dedupe_run(desk.thread, "k"), "another-run")
    desk.finish(owner)
    assert desk.ttl(keys.dedupe_run(desk.thread, "k")) == -1


def test_refused_and_repeated_submissions_leave_no_trace(desk: Desk) -> None:
    desk.submit(idempotency_key="k")
    with pytest.raises(ThreadBusy):
        desk.submit(run_id="refused-" + desk.tag, on_busy="reject")
    desk.submit(run_id="repeated-" + desk.tag, idempotency_key="k")
    for name in ("refused-", "repeated-"):
        assert desk.client.exists(keys.run_index(name + desk.tag), keys.run(desk.thread, name + desk.tag)) == 0
        assert desk.client.zscore(keys.RUNS, name + desk.tag) is None


def test_runs_take_turns_by_priority_then_arrival(desk: Desk) -> None:
    low, second, third, urgent = (desk.submit(priority=p).run_id for p in (200, 128, 128, 0))
    order = []
    for _ in range(4):
        head = desk.client.zrange(keys.lane(desk.thread), 0, 0)[0].decode()
        owner = desk.owner(head, desk.claim(head).fence)
        order.append(head)
        bell = desk.finish(owner).doorbell
        assert bell is None or bell.run_id == desk.client.zrange(keys.lane(desk.thread), 0, 0)[0].decode()
    assert order == [urgent, second, third, low]


def test_reject_names_the_run_in_the_way(desk: Desk) -> None:
    run_id = desk.submit().run_id
    with pytest.raises(ThreadBusy, match=run_id):
        desk.submit(on_busy="reject")
    desk.cancel(run_id)
    assert desk.submit(on_busy="reject").outcome == "queued"


@pytest.mark.parametrize(("mode", "code"), [("interrupt", "interrupted"), ("rollback", "rolled_back")])
def test_interrupt_clears_the_thread_and_asks_the_working_run_to_stop(desk: Desk, mode: str, code: str) -> None:
    owner = desk.started()
    desk.commit(owner, Batch(1, step=1).say(message("assistant", "half a thought").as_dict()))
    queued, delayed = desk.submit().run_id, desk.submit(start_at=desk.now + 50).run_id
    new = desk.submit(on_busy=mode)
    assert sorted(new.ended) == sorted([queued, delayed])
    for run_id in new.ended:
        assert [event["code"] for event in desk.terminal(run_id)] == ["superseded"]
    assert desk.record(new.run_id).epoch == 1
    arrivals = desk.commit(owner)
    assert arrivals.cancel == code
    with pytest.raises(NothingToDo, match="waits for run"):
        desk.claim(new.run_id)
    assert desk.finish(owner, "cancelled", code=code).doorbell is not None
    desk.claim(new.run_id)
    assert desk.texts() == ([] if mode == "rollback" else [("assistant", "half a thought")])


def test_interrupt_then_enqueue_runs_in_the_new_epoch(desk: Desk) -> None:
    old = desk.submit().run_id
    assert desk.interrupt().ended == [old]
    new = desk.submit().run_id
    assert desk.record(new).epoch == 1
    desk.claim(new)
    assert desk.record(old).termination is not None


def test_interrupting_nothing_is_an_error_and_an_idle_thread_only_gets_a_new_epoch(desk: Desk) -> None:
    with pytest.raises(ThreadNotFound):
        desk.interrupt()
    desk.finish(desk.started())
    outcome = desk.interrupt()
    assert (outcome.epoch, outcome.open, outcome.ended, outcome.doorbell) == (1, "", [], None)


def test_steering_becomes_mail_for_the_run_that_is_there(desk: Desk) -> None:
    owner = desk.started()
    steered = desk.submit("look left", on_busy="steer", run_id="s-" + desk.tag)
    assert (steered.outcome, steered.run_id) == ("steered", owner.run_id)
    again = desk.submit("look left", on_busy="steer", run_id="s-" + desk.tag)
    assert (again.outcome, again.run_id) == ("again", owner.run_id)
    (mail,) = desk.commit(owner).mail
    assert (mail.kind, mail.message["content"][0]["text"]) == ("steer", "look left")


def test_steering_an_idle_thread_becomes_a_run(desk: Desk) -> None:
    run_id = desk.submit("look left", on_busy="steer").run_id
    assert desk.claim(run_id).mail == []
    assert desk.record(run_id).request["messages"]


@pytest.mark.parametrize("on_waiting", ["supersede", "enqueue", "reject"])
def test_meeting_a_run_that_waits(desk: Desk, on_waiting: str) -> None:
    owner = desk.started()
    batch = Batch(1, step=1).raise_ticket("c1", {"id": "k", "call_id": "c1", "tool": "pay"})
    calls = [{"id": "c1", "name": "pay", "arguments": {}}]
    batch.say({"role": "assistant", "tool_calls": calls})
    desk.suspend(owner, WaitingReason.APPROVAL, batch=batch)
    if on_waiting == "reject":
        with pytest.raises(ThreadBusy, match=owner.run_id):
            desk.submit(on_waiting=on_waiting)
        assert desk.status(owner.run_id) == "waiting"
        return
    run_id = desk.submit(on_waiting=on_waiting).run_id
    if on_waiting == "enqueue":
        with pytest.raises(NothingToDo, match="waits for run"):
            desk.claim(run_id)
        return
    assert [event["code"] for event in desk.terminal(owner.run_id)] == ["superseded"]
    assert desk.texts() == [("assistant", ""), ("tool", "[tool call superseded]")]
    desk.claim(run_id)


def test_limits_are_refused_with_their_number(desk: Desk) -> None:
    desk.settings = Settings(max_lane=2, max_mail=1)
    owner = desk.started()
    desk.submit()
    desk.submit()
    with pytest.raises(LaneFull, match="limit is 2"):
        desk.submit()
    desk.submit(on_busy="steer")
    with pytest.raises(MailboxFull, match="1"):
        desk.submit(on_busy="steer")
    assert desk.submit(on_busy="interrupt").outcome == "queued"
    assert desk.status(owner.run_id) == "running"


def test_a_delayed_run_starts_in_time_and_blocks_nobody(desk: Desk) -> None:
    delayed = desk.submit(start_at=desk.now + 1000)
    assert delayed.outcome == "delayed"
    assert desk.watched() == desk.now + 1000
    with pytest.raises(NothingToDo):
        desk.claim(delayed.run_id)
    desk.finish(desk.started())
    desk.now += 999
    assert desk.look().doorbell is None
    desk.now += 1
    bell = desk.look().doorbell
    assert bell is not None
    assert bell.run_id == delayed.run_id
    desk.claim(delayed.run_id)


def test_the_agent_is_the_threads_when_none_is_named(desk: Desk) -> None:
    assert desk.record(desk.submit(agent=None).run_id).agent == "default"
    assert desk.record(desk.submit(agent="editor").run_id).agent == "editor"
    assert desk.record(desk.submit(agent=None).run_id).agent == "editor"


class TestCancel:
    def test_queued_by_run_id(self, desk: Desk) -> None:
        desk.started()
        queued = desk.submit().run_id
        assert desk.cancel(queued).outcome == "cancelled"
        assert desk.cancel(queued).outcome == "done"
        assert len(desk.terminal(queued)) == 1

    def test_running_is_flagged_and_its_worker_told(self, desk: Desk) -> None:
        owner = desk.started(worker="w9")
        listener = desk.client.pubsub(ignore_subscribe_messages=True)
        listener.subscribe(keys.control("w9"))
        listener.get_message(timeout=1)
        assert desk.cancel(owner.run_id).outcome == "requested"
        assert desk.cancel(owner.run_id).outcome == "requested"
        message = listener.get_message(timeout=1)
        assert message is not None
        assert message["data"] == f"cancel {owner.run_id}".encode()
        listener.close()
        assert desk.renew(owner).cancel == "cancelled"
        assert [event["type"] for event in desk.events(owner.run_id)] == ["cancel_requested"]
        desk.finish(owner, "cancelled")
        assert len(desk.terminal(owner.run_id)) == 1

    def test_running_on_a_worker_that_died_ends_on_the_spot(self, desk: Desk) -> None:
        owner = desk.started()
        desk.now += LEASE
        assert desk.cancel(owner.run_id).outcome == "requested"
        desk.now += 1
        assert desk.cancel(owner.run_id).outcome == "cancelled"
        assert len(desk.terminal(owner.run_id)) == 1

    def test_waiting_ends_on_the_spot_and_the_next_one_is_rung(self, desk: Desk) -> None:
        owner = desk.started()
        following = desk.submit().run_id
        desk.suspend(owner, WaitingReason.MANUAL)
        outcome = desk.cancel()
        assert (outcome.outcome, outcome.run_id) == ("cancelled", owner.run_id)
        assert outcome.doorbell is not None
        assert outcome.doorbell.run_id == following

    def test_by_thread_takes_the_open_run_then_the_next(self, desk: Desk) -> None:
        owner, queued = desk.started(), desk.submit().run_id
        assert desk.cancel().run_id == owner.run_id
        desk.finish(owner, "cancelled")
        assert desk.cancel().run_id == queued
        with pytest.raises(RunNotFound, match="no run to cancel"):
            desk.cancel()

    def test_unknown(self, desk: Desk) -> None:
        with pytest.raises(RunNotFound, match="ghost"):
            desk.cancel("ghost")

    def test_a_flag_is_honoured_when_the_run_is_given_back(self, desk: Desk) -> None:
        owner = desk.started()
        desk.cancel(owner.run_id)
        assert desk.release(owner).outcome == "done"
        assert [event["termination"] for event in desk.terminal(owner.run_id)] == ["cancelled"]

    def test_mail_left_unread_by_a_cancelled_run_starts_another(self, desk: Desk) -> None:
        owner = desk.started()
        desk.suspend(owner, WaitingReason.APPROVAL)
        desk.send("m1")
        bell = desk.cancel(owner.run_id).doorbell
        assert bell is not None
        assert [mail.id for mail in desk.claim(bell.run_id).mail] == ["m1"]
        assert [mail.id for mail in desk.run(inbox.unread(desk.thread))] == ["m1"]


def test_a_rolled_back_run_that_commits_once_more_stays_out_of_sight(desk: Desk) -> None:
    owner = desk.started()
    desk.submit(on_busy="rollback")
    desk.commit(owner, Batch(1, step=1).say(message("assistant", "too late").as_dict()))
    raw = desk.run(log.read(desk.thread))
    assert len(raw) == 2
    assert desk.texts() == []


def test_a_run_id_belongs_to_one_thread(desk: Desk) -> None:
    run_id = desk.submit().run_id
    with pytest.raises(InvalidInput, match="in use on thread"):
        Desk(desk.client).submit(run_id=run_id)
    with pytest.raises(InvalidInput, match="mail-"):
        desk.submit(run_id="mail-7")


def test_a_cancel_by_thread_that_is_repeated_means_the_same_run(desk: Desk) -> None:
    first, second = desk.submit().run_id, desk.submit().run_id
    for expected in ("cancelled", "done"):
        outcome = desk.run(lane.cancel(desk.thread, request_id="c1", now=desk.now))
        assert (outcome.outcome, outcome.run_id) == (expected, first)
    assert desk.status(second) == "queued"


def test_a_rolled_back_summary_does_not_take_the_conversation_with_it(desk: Desk) -> None:
    first = desk.started()
    desk.finish(first, batch=Batch(1, step=1).say(message("user", "my name is Ann").as_dict()))
    second = desk.started()
    summary = message("system", "Ann said hello").as_dict()
    desk.commit(second, Batch(1, step=1, thread_fields={"mark": 2}).say(summary, covers=(1, 1)))
    third = desk.submit(on_busy="rollback").run_id
    desk.finish(second, "cancelled")
    claim = desk.claim(third)
    assert [each.message["content"][0]["text"] for each in log.view(claim.log)] == ["my name is Ann"]


def test_only_an_idle_thread_can_be_deleted(desk: Desk) -> None:
    delayed = desk.submit(start_at=desk.now + 1000).run_id
    with pytest.raises(ThreadBusy, match=delayed):
        desk.run(lane.delete(desk.thread, desk.now))
    desk.cancel(delayed)
    assert desk.run(lane.delete(desk.thread, desk.now)) == 0


@pytest.mark.parametrize("run_id", ["R:state", "a b", ""])
def test_a_run_id_that_could_name_another_key_is_refused(desk: Desk, run_id: str) -> None:
    desk.submit()
    with pytest.raises(InvalidInput):
        desk.claim(run_id)

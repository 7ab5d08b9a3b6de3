"""Commit, suspend, finish: a step is written whole or not at all, and once."""

from collections.abc import Callable

import pytest

from postroom.mailbox import commit, inbox, journal, keys, log, ops
from postroom.mailbox.commit import Batch
from postroom.mailbox.contracts import Termination, message
from postroom.mailbox.errors import BodyTooLarge, EventsTrimmed, InvalidInput, MoveRefused
from postroom.mailbox.lifecycle import CallStatus, WaitingReason
from tests.mailbox.desk import Desk


def full_batch(number: int = 1) -> Batch:
    """One of everything."""
    batch = Batch(number, step=1, run_fields={"step": 1}, thread_fields={"mark": 1})
    batch.say(message("user", "hi").as_dict()).say(message("assistant", "ho").as_dict())
    batch.tell({"type": "step_start"}).tell({"type": "text_delta", "delta": "ho"}).tell({"type": "step_end"})
    batch.note_call("c1", CallStatus.RUNNING, name="pay", index=0)
    batch.run_state["r"] = b"1"
    batch.thread_state["t"] = b"2"
    return batch


def snapshot(desk: Desk) -> dict[bytes, object]:
    """Everything Redis holds of the thread."""
    readers: dict[bytes, Callable[[bytes], object]] = {
        b"hash": desk.client.hgetall,
        b"string": desk.client.get,
        b"zset": lambda key: desk.client.zrange(key, 0, -1, withscores=True),
        b"stream": desk.client.xrange,
    }
    found = desk.client.scan_iter(match=f"postroom:{{{desk.thread}}}:*", count=1000)
    return {key: readers[desk.client.type(key)](key) for key in found}


def test_a_step_is_written_whole(desk: Desk) -> None:
    owner = desk.started()
    arrivals = desk.commit(owner, full_batch())
    assert (arrivals.outcome, arrivals.seq, arrivals.events) == ("committed", 2, 3)
    assert desk.texts() == [("user", "hi"), ("assistant", "ho")]
    assert [event["type"] for event in desk.events(owner.run_id)] == ["step_start", "text_delta", "step_end"]
    assert desk.client.hgetall(keys.run_state(desk.thread, owner.run_id)) == {b"r": b"1"}
    assert desk.client.hgetall(keys.thread_state(desk.thread)) == {b"t": b"2"}
    assert desk.record(owner.run_id).step == 1


def test_the_same_commit_again_changes_nothing(desk: Desk) -> None:
    owner = desk.started()
    desk.commit(owner, full_batch())
    before = snapshot(desk)
    again = desk.commit(owner, full_batch())
    assert (again.outcome, again.seq, again.events) == ("again", 2, 3)
    assert snapshot(desk) == before


def test_a_refused_batch_leaves_nothing_behind(desk: Desk) -> None:
    owner = desk.started()
    desk.commit(owner, full_batch().note_call("c2", CallStatus.SUCCEEDED))
    before = snapshot(desk)
    refused = full_batch(2).note_call("c2", CallStatus.RUNNING).read(1)
    for verb in (
        commit.commit(owner, refused, desk.now),
        commit.suspend(owner, refused, WaitingReason.INPUT, now=desk.now),
        commit.finish(owner, refused, Termination(kind="natural_end"), now=desk.now),
    ):
        with pytest.raises(MoveRefused, match="c2"):
            desk.run(verb)
    assert snapshot(desk) == before


def test_mail_leaves_the_mailbox_in_the_commit_that_reads_it(desk: Desk) -> None:
    owner = desk.started()
    for i in range(3):
        desk.send(f"m{i}")
    first, second, third = desk.commit(owner).mail
    left = desk.commit(owner, Batch(2).read(first.number).read(second.number)).mail
    assert [mail.id for mail in left] == ["m2"]
    assert desk.commit(owner, Batch(3).read(third.number)).mail == []
    assert desk.client.exists(keys.mailbox(desk.thread)) == 0
    assert desk.send("m3").number == 4  # numbers go on although the stream was deleted


def test_state_values_can_be_dropped_and_many_set_at_once(desk: Desk) -> None:
    owner = desk.started()
    desk.commit(owner, Batch(1, run_state={f"k{i}": b"v" for i in range(9000)}, thread_state={"a": b"1", "b": b"2"}))
    desk.commit(owner, Batch(2, run_state_dropped=[f"k{i}" for i in range(8999)], thread_state_dropped=["a"]))
    assert desk.client.hkeys(keys.run_state(desk.thread, owner.run_id)) == [b"k8999"]
    assert desk.client.hkeys(keys.thread_state(desk.thread)) == [b"b"]


@pytest.mark.parametrize("batch", [Batch(1, run_fields={"status": "done"}), Batch(1, thread_fields={"fence": 9})])
def test_a_step_cannot_set_what_belongs_to_the_scripts(desk: Desk, batch: Batch) -> None:
    with pytest.raises(InvalidInput, match="may not set"):
        desk.commit(desk.started(), batch)


class TestSuspend:
    def test_a_waiting_run_holds_neither_worker_nor_lock(self, desk: Desk) -> None:
        owner = desk.started()
        assert desk.suspend(owner, WaitingReason.INPUT).outcome == "waiting"
        record = desk.record(owner.run_id)
        assert (record.status, record.waiting, record.worker) == ("waiting", "input", None)
        assert desk.client.exists(keys.lock(desk.thread)) == 0
        assert desk.look().again == 0
        assert desk.watched() is None

    def test_the_same_suspension_again_changes_nothing(self, desk: Desk) -> None:
        owner = desk.started()
        batch = full_batch()
        desk.suspend(owner, batch=batch)
        before = snapshot(desk)
        assert desk.suspend(owner, batch=batch).outcome == "again"
        assert snapshot(desk) == before

    def test_it_goes_on_when_what_it_waits_for_is_there(self, desk: Desk) -> None:
        owner = desk.started()
        desk.send()
        arrivals = desk.suspend(owner, WaitingReason.TASKS)
        assert (arrivals.outcome, len(arrivals.mail)) == ("continue", 1)
        assert desk.status(owner.run_id) == "running"
        assert desk.suspend(owner, WaitingReason.APPROVAL).outcome == "waiting"  # mail is not a person's answer

    def test_it_goes_on_when_it_was_cancelled_meanwhile(self, desk: Desk) -> None:
        owner = desk.started()
        desk.cancel(owner.run_id)
        arrivals = desk.suspend(owner)
        assert (arrivals.outcome, arrivals.cancel) == ("continue", "cancelled")

    def test_a_time_wakes_it(self, desk: Desk) -> None:
        owner = desk.started()
        desk.suspend(owner, WaitingReason.TIME, wake=desk.now + 60_000)
        assert desk.look().again == desk.now + 60_000
        desk.now += 60_000
        bell = desk.look().doorbell
        assert bell is not None
        desk.claim(bell.run_id)
        assert [event["type"] for event in desk.events(owner.run_id)] == ["run_waiting", "run_requeued"]


class TestFinish:
    def test_one_terminal_event_with_the_outcome(self, desk: Desk) -> None:
        owner = desk.started()
        how = Termination(kind="stopped", code="max_rounds", message="16 rounds")
        op = commit.finish(owner, full_batch(), how, {"response": "ho"}, now=desk.now)
        assert desk.run(op).outcome == "finished"
        assert desk.run(op).outcome == "again"
        (terminal,) = desk.terminal(owner.run_id)
        assert terminal == {
            "type": "run_finish",
            "termination": "stopped",
            "code": "max_rounds",
            "message": "16 rounds",
            "result": {"response": "ho"},
            "step": 1,
        }
        record = desk.record(owner.run_id)
        assert record.termination == how
        assert desk.events(owner.run_id)[-1] == terminal

    def test_mail_before_a_natural_end_keeps_the_run_going(self, desk: Desk) -> None:
        owner = desk.started()
        desk.send()
        arrivals = desk.finish(owner, batch=full_batch())
        assert (arrivals.outcome, len(arrivals.mail), desk.status(owner.run_id)) == ("continue", 1, "running")
        assert desk.finish(owner, batch=full_batch()).outcome == "continue"  # a retry hears the same
        assert len(desk.events(owner.run_id)) == 3
        assert desk.finish(owner, batch=Batch(2).read(1)).outcome == "finished"

    def test_mail_left_by_any_other_end_starts_a_run(self, desk: Desk) -> None:
        owner = desk.started()
        desk.send()
        bell = desk.finish(owner, "error", code="boom").doorbell
        assert bell is not None
        assert [mail.id for mail in desk.claim(bell.run_id).mail] == ["m1"]

    def test_open_calls_get_their_one_result_in_order(self, desk: Desk) -> None:
        owner = desk.started()
        asked = [{"id": call, "name": "pay"} for call in ("z", "a", "m")]
        batch = Batch(1, step=1).say({"role": "assistant", "tool_calls": asked})
        batch.note_call("z", CallStatus.RUNNING, index=0)
        batch.note_call("a", CallStatus.RUNNING, index=1)
        batch.note_call("m", CallStatus.RUNNING, index=2)
        desk.commit(owner, batch)
        desk.commit(owner, Batch(2).note_call("a", CallStatus.SUCCEEDED, text="paid"))
        desk.finish(owner, "cancelled", code="cancelled")
        assert desk.texts() == [
            ("assistant", ""),
            ("tool", "[tool call cancelled]"),
            ("tool", "paid"),
            ("tool", "[tool call cancelled]"),
        ]
        view = log.view(desk.run(log.read(desk.thread)))
        assert [entry.message["tool_call_id"] for entry in view[1:]] == ["z", "a", "m"]
        assert desk.client.exists(keys.calls(desk.thread, owner.run_id)) == 0

    def test_an_idle_thread_leaves_the_watch_list_at_once(self, desk: Desk) -> None:
        desk.finish(desk.started())
        assert desk.watched() is None


def test_events_are_numbered_and_a_gap_is_told(desk: Desk) -> None:
    owner = desk.started()
    for number in range(1, 4):
        batch = Batch(number, max_events=100)
        for i in range(200):
            batch.tell({"type": "text_delta", "delta": str(i)})
        desk.commit(owner, batch)
    (raw,) = ops.exchange(desk.client, [("XRANGE", keys.events(desk.thread, owner.run_id), "-", "+")])
    first = journal.entries(raw)[0].number
    assert first > 200  # trimmed, if not to the very number
    found = desk.run(journal.read(desk.thread, owner.run_id, first - 1, 3))
    assert [each.number for each in found[:3]] == [first, first + 1, first + 2]
    assert desk.run(journal.read(desk.thread, owner.run_id, 600)) == []
    with pytest.raises(EventsTrimmed, match=f"events 8 to {first - 1}"):
        desk.run(journal.read(desk.thread, owner.run_id, 7))


def test_unread_mail_can_be_looked_at(desk: Desk) -> None:
    desk.started()
    desk.send("m1", "one", sender="clerk")
    (mail,) = desk.run(inbox.unread(desk.thread))
    assert (mail.id, mail.sender, mail.kind, mail.at) == ("m1", "clerk", "message", desk.now)


def test_a_batch_too_wide_for_lua_is_refused_before_it_writes(desk: Desk) -> None:
    owner = desk.started()
    batch = full_batch()
    batch.events.append(["type", "wide", *(str(i) for i in range(9000))])
    before = snapshot(desk)
    with pytest.raises(InvalidInput, match="more than 1000 fields"):
        desk.commit(owner, batch)
    assert snapshot(desk) == before
    wide = Batch(1).tell({"type": "custom", **{f"k{i}": "v" for i in range(4000)}})
    desk.commit(owner, wide)  # the same, said through the journal, goes into the body
    assert len(desk.events(owner.run_id)[0]) == 4001


def test_a_call_id_may_come_again_in_a_later_step(desk: Desk) -> None:
    owner = desk.started()
    ask = {"role": "assistant", "tool_calls": [{"id": "call_0", "name": "look"}]}

    def answer(words: str) -> dict[str, object]:
        return {"role": "tool", "tool_call_id": "call_0", "content": [{"type": "text", "text": words}]}

    desk.commit(owner, Batch(1, step=1).say(ask).note_call("call_0", CallStatus.SUCCEEDED))
    again = Batch(2, step=2, clear_calls=True).say(answer("one")).say(ask).note_call("call_0", CallStatus.RUNNING)
    desk.commit(owner, again)
    desk.finish(owner, "cancelled", code="cancelled")
    assert desk.texts() == [("assistant", ""), ("tool", "one"), ("assistant", ""), ("tool", "[tool call cancelled]")]


def test_a_finished_call_keeps_a_result_of_several_blocks(desk: Desk) -> None:
    owner = desk.started()
    blocks = [{"type": "text", "text": "paid"}, {"type": "text", "text": ", receipt 7"}]
    fields = log.fields({"role": "tool", "tool_call_id": "c", "content": blocks}, 1)
    ask = {"role": "assistant", "tool_calls": [{"id": "c", "name": "pay"}]}
    body = fields[fields.index("body") + 1]
    desk.commit(owner, Batch(1, step=1).say(ask).note_call("c", CallStatus.SUCCEEDED, body=body))
    desk.finish(owner, "cancelled", code="cancelled")
    assert desk.texts() == [("assistant", ""), ("tool", "paid, receipt 7")]


def test_a_step_cannot_tell_the_terminal_event_itself() -> None:
    with pytest.raises(InvalidInput, match="finish the run"):
        Batch(1).tell({"type": "run_finish", "termination": "natural_end"})


def test_waiting_for_a_time_needs_one(desk: Desk) -> None:
    with pytest.raises(InvalidInput, match="which"):
        desk.suspend(desk.started(), WaitingReason.TIME)


def test_texts_keep_to_the_limit_that_bodies_have() -> None:
    for verb in (Batch(1, limit=100).say, Batch(1, limit=100).tell):
        with pytest.raises(BodyTooLarge):
            verb(
                {
                    "role": "user",
                    "type": "text_delta",
                    "delta": "é" * 60,
                    "content": [{"type": "text", "text": "é" * 60}],
                }
            )


@pytest.mark.parametrize(("last", "closed"), [("", []), ("2", ["2"]), (None, ["1"])])
def test_a_step_left_open_is_closed_with_its_run(desk: Desk, last: str | None, closed: list[str]) -> None:
    owner = desk.started()
    desk.commit(owner, Batch(1, run_fields={"phase": "1"}))
    desk.finish(owner, batch=Batch(2, run_fields={} if last is None else {"phase": last}))
    ends = [event for event in desk.events(owner.run_id) if event["type"] == "step_end"]
    assert [str(event["step"]) for event in ends] == closed
    assert desk.events(owner.run_id)[-1]["type"] == "run_finish"
    assert desk.record(owner.run_id).events == len(desk.events(owner.run_id))
    assert not desk.client.hget(keys.run(desk.thread, owner.run_id), "phase")

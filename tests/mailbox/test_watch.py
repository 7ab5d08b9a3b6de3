"""The look: takes back what a dead worker held, starts what is due, rings again, and goes quiet when all is well."""

import pytest

from postroom.mailbox import keys, watch
from postroom.mailbox.commit import Batch
from postroom.mailbox.contracts import message
from postroom.mailbox.errors import NothingToDo
from postroom.mailbox.lifecycle import CallStatus, WaitingReason
from postroom.mailbox.settings import DAY
from tests.mailbox.desk import LEASE, Desk


def test_a_dead_workers_run_goes_on_from_its_last_commit(desk: Desk) -> None:
    owner = desk.started(worker="w1")
    desk.commit(owner, Batch(1, step=1, run_fields={"step": 1}).say(message("user", "hi").as_dict()))
    desk.now += LEASE + 1
    look = desk.look()
    assert look.doorbell is not None
    assert (look.dead, desk.record(owner.run_id).attempts) == ("", 1)
    claim = desk.claim(owner.run_id, "w2")
    assert (claim.run["step"], claim.run["commits"], len(claim.log)) == (b"1", b"1", 1)
    requeued = [event for event in desk.events(owner.run_id) if event["type"] == "run_requeued"]
    assert [(event["reason"], event["attempts"]) for event in requeued] == [("crash", "1")]


def test_a_worker_known_to_be_dead_is_not_waited_for(desk: Desk) -> None:
    owner = desk.started(worker="w1")
    assert desk.look(dead_worker="w2").doorbell is None
    assert desk.status(owner.run_id) == "running"
    assert desk.look(dead_worker="w1").doorbell is not None
    assert desk.status(owner.run_id) == "queued"


def test_the_fifth_crash_is_the_last(desk: Desk) -> None:
    owner = desk.started()
    calls = [{"id": "c1", "name": "pay", "arguments": {}}]
    desk.commit(owner, Batch(1).say({"role": "assistant", "tool_calls": calls}).note_call("c1", CallStatus.RUNNING))
    for _ in range(4):
        desk.now += LEASE + 1
        assert desk.look().dead == ""
        desk.claim(owner.run_id)
    desk.now += LEASE + 1
    assert desk.look().dead == owner.run_id
    (terminal,) = desk.terminal(owner.run_id)
    assert (terminal["termination"], terminal["code"]) == ("error", "crashed")
    assert desk.texts() == [("assistant", ""), ("tool", "[tool call crashed]")]
    assert desk.client.zscore(keys.DEAD, owner.run_id) is not None
    assert desk.watched() is None


def test_a_lost_doorbell_rings_again_ever_more_patiently(desk: Desk) -> None:
    run_id = desk.submit().run_id
    waits = []
    for ring in range(1, 10):
        desk.client.delete(f"rq:job:{run_id}-{ring}")  # whoever took it died before claiming
        again = desk.look().again
        waits.append(again - desk.now)
        desk.now = again - 1
        assert desk.look().doorbell is None
        desk.now = again
        bell = desk.look().doorbell
        assert bell is not None
        assert bell.run_id == run_id
    assert waits == [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 320_000, 320_000]
    owner = desk.owner(run_id, desk.claim(run_id).fence)
    desk.release(owner)
    assert desk.look().again == desk.now + 5_000  # patience is learnt anew after each answer


def test_looking_twice_changes_nothing(desk: Desk) -> None:
    owner = desk.started()
    desk.now += LEASE + 1
    assert desk.look().doorbell is not None
    assert desk.look().doorbell is None
    assert desk.record(owner.run_id).attempts == 1


@pytest.mark.parametrize("state", ["queued", "running", "waiting", "lost"])
def test_a_deadline_ends_a_run_in_any_state(desk: Desk, state: str) -> None:
    deadline = desk.now + 1000
    if state == "queued":
        run_id = desk.submit(deadline=deadline).run_id
    else:
        owner = desk.started(deadline=deadline)
        run_id = owner.run_id
        if state == "waiting":
            desk.suspend(owner, WaitingReason.MANUAL)
        if state == "lost":
            desk.client.delete(keys.lock(desk.thread))
    following = desk.submit(on_waiting="enqueue").run_id
    desk.now = deadline
    if state == "queued":
        with pytest.raises(NothingToDo, match="deadline"):
            desk.claim(run_id)
    look = desk.look()
    if state == "running":
        assert desk.renew(owner).cancel == "deadline"
        desk.finish(owner, "stopped", code="deadline")
    else:
        assert look.doorbell is not None
        assert look.doorbell.run_id == following
    (terminal,) = desk.terminal(run_id)
    assert (terminal["termination"], terminal["code"]) == ("stopped", "deadline")


def test_a_cancelled_run_whose_worker_died_ends_cancelled(desk: Desk) -> None:
    owner = desk.started()
    desk.cancel(owner.run_id)
    desk.now += LEASE + 1
    desk.look()
    (terminal,) = desk.terminal(owner.run_id)
    assert (terminal["termination"], terminal["code"]) == ("cancelled", "cancelled")


def test_due_lists_threads_by_time(desk: Desk) -> None:
    desk.submit()
    assert desk.thread not in desk.run(watch.due(desk.now + 4_999, 10_000))
    assert desk.thread in desk.run(watch.due(desk.now + 5_000, 10_000))


def test_the_more_doorbells_lie_in_front_the_later_somebody_looks(desk: Desk) -> None:
    desk.submit()
    behind = [Desk(desk.client) for _ in range(3)]
    for each in behind:
        each.now = desk.now
        each.submit(queue=desk.queue)
    assert [each.watched() for each in (desk, *behind)] == [desk.now + 5_000 + before for before in range(4)]


def test_the_servers_clock_is_used_when_none_is_given(desk: Desk) -> None:
    before = desk.run(watch.clock())
    run_id = desk.submit().run_id
    desk.now = None  # type: ignore[assignment]
    claim = desk.claim(run_id)
    assert before + LEASE <= claim.lease_until <= desk.run(watch.clock()) + LEASE


class TestRetention:
    def test_a_finished_run_and_an_idle_thread_expire(self, desk: Desk) -> None:
        owner = desk.started(idempotency_key="k")
        batch = Batch(1).say(message("assistant", "x").as_dict()).tell({"type": "step_end"})
        batch.run_state["a"] = batch.thread_state["b"] = b"1"
        desk.finish(owner, batch=batch)
        week, month = desk.settings.run_retention_ms, desk.settings.thread_retention_ms
        for key in (
            keys.run(desk.thread, owner.run_id),
            keys.events(desk.thread, owner.run_id),
            keys.run_state(desk.thread, owner.run_id),
            keys.run_index(owner.run_id),
        ):
            assert week - DAY < desk.ttl(key) <= week
        for key in (keys.thread(desk.thread), keys.log(desk.thread), keys.thread_state(desk.thread)):
            assert month - DAY < desk.ttl(key) <= month
        for key in desk.client.scan_iter(match=f"postroom:{{{desk.thread}}}:*", count=1000):
            assert desk.ttl(key) > 0, f"{key!r} would stay for ever"

    def test_a_thread_with_work_does_not_expire(self, desk: Desk) -> None:
        desk.finish(desk.started(), batch=Batch(1, thread_state={"a": b"1"}).say(message("user", "x").as_dict()))
        desk.submit()
        for key in (keys.thread(desk.thread), keys.log(desk.thread), keys.thread_state(desk.thread)):
            assert desk.ttl(key) == -1

    def test_a_thread_with_a_timer_neither_expires_nor_leaves_the_watch_list(self, desk: Desk) -> None:
        owner = desk.started()
        later = desk.submit(start_at=desk.now + DAY)
        desk.finish(owner)
        assert desk.ttl(keys.thread(desk.thread)) == -1
        assert desk.watched() is not None
        desk.cancel(later.run_id)
        assert desk.ttl(keys.thread(desk.thread)) > 0
        assert desk.watched() is None

    def test_the_listings_forget_what_has_expired_and_keep_what_lives(self, desk: Desk) -> None:
        gone, waiting = desk.started(), Desk(desk.client)
        desk.finish(gone)
        waiting.now = desk.now
        open_run = waiting.started()
        waiting.suspend(open_run)
        desk.client.delete(keys.run_index(gone.run_id), keys.thread(desk.thread))
        later = desk.now + 60 * DAY
        for listing in (keys.RUNS, keys.THREADS):
            while desk.run(watch.tidy(listing, desk.now, later)):
                pass
        assert desk.client.zscore(keys.RUNS, gone.run_id) is None
        assert desk.client.zscore(keys.THREADS, desk.thread) is None
        assert desk.client.zscore(keys.RUNS, open_run.run_id) == later
        assert desk.client.zscore(keys.THREADS, waiting.thread) == later


def test_a_claim_after_a_long_silence_is_looked_at_when_its_lease_ends(desk: Desk) -> None:
    run_id = desk.submit().run_id
    for _ in range(8):
        desk.now = desk.look().again
    desk.look()
    claim = desk.claim(run_id)
    assert desk.watched() == claim.lease_until + 1


def test_a_doorbell_that_still_lies_in_its_queue_is_not_rung_for_again_at_once(desk: Desk) -> None:
    run_id = desk.submit(queue="busy").run_id
    for _ in range(3):
        desk.now = desk.look().again
        assert desk.look().doorbell is None
    desk.now = desk.look().again
    assert desk.look().doorbell is not None  # believed long enough: the same job once more
    assert desk.client.lrange("rq:queue:busy", 0, -1).count(f"{run_id}-1".encode()) == 2
    assert not desk.client.exists(f"rq:job:{run_id}-2")


def test_a_thread_open_for_a_run_that_is_gone_is_freed(desk: Desk) -> None:
    owner = desk.started()
    following = desk.submit().run_id
    desk.client.delete(keys.run(desk.thread, owner.run_id))
    bell = desk.look().doorbell
    assert bell is not None
    assert bell.run_id == following


def test_what_cannot_name_a_thread_is_told_apart(desk: Desk) -> None:
    odd = [b"\xff" + desk.thread.encode(), b"a{b" + desk.thread.encode(), b"x" * 300]
    desk.client.zadd(keys.WATCH, dict.fromkeys([*odd, desk.thread.encode()], 1))
    assert desk.thread in desk.run(watch.due(1, 10_000))
    found = desk.run(watch.odd(1, 10_000))
    assert set(odd) <= set(found)
    for entry in (*found, desk.thread.encode()):
        desk.run(watch.forget(entry))
    assert not set(odd) & set(desk.client.zrange(keys.WATCH, 0, -1))

"""Claim, renew, release: one writer per thread, proved by the fence."""

import pytest

from postroom.mailbox import keys, lock
from postroom.mailbox.commit import Batch
from postroom.mailbox.contracts import message
from postroom.mailbox.errors import CommitGap, FenceLost, NothingToDo, RunNotFound
from postroom.mailbox.lifecycle import CallStatus
from postroom.mailbox.lock import Failure
from tests.mailbox.desk import LEASE, Desk


def test_a_claim_brings_all_that_the_loop_needs(desk: Desk) -> None:
    first = desk.started(worker="w7")
    batch = Batch(1, step=1).say(message("user", "hi").as_dict()).say(message("assistant", "ho").as_dict())
    batch.run_state["r"], batch.thread_state["t"] = b"\x01\x01", b"\x01\x02"
    desk.finish(first, batch=batch)
    desk.send("m1", "psst")
    run_id = desk.client.zrange(keys.lane(desk.thread), 0, 0)[0].decode()
    claim = desk.claim(run_id, "w8")
    assert claim.fence == first.fence + 1
    assert claim.lease_until == desk.now + LEASE
    assert [entry.message["role"] for entry in claim.log] == ["user", "assistant"]
    assert [mail.id for mail in claim.mail] == ["m1"]
    assert (claim.run_state, claim.thread_state) == ({}, {"t": b"\x01\x02"})
    assert (claim.run["status"], claim.thread["seq"]) == (b"queued", b"2"), "as they were"
    assert claim.started == desk.now
    assert desk.client.hget(keys.run(desk.thread, run_id), "status") == b"running"
    assert desk.client.hget(keys.thread(desk.thread), "open").decode() == run_id
    assert desk.run(lock.holder(desk.thread)) == lock.Holder(run_id, "w8", claim.fence, claim.lease_until)


def test_a_claim_brings_what_steps_without_words_have_left(desk: Desk) -> None:
    owner = desk.started()
    batch = Batch(1, run_state={"r": b"1"}, thread_state={"t": b"2"}).note_call("c1", CallStatus.RUNNING)
    desk.commit(owner, batch)
    desk.release(owner)
    claim = desk.claim(owner.run_id)
    assert (claim.run_state, claim.thread_state) == ({"r": b"1"}, {"t": b"2"})
    assert claim.calls == {"status:c1": b"running"}
    assert (claim.run["commits"], claim.fence) == (b"1", owner.fence + 1)
    assert claim.started == desk.now, "when it was claimed for the first time"


def test_only_one_of_two_workers_gets_the_thread(desk: Desk) -> None:
    run_id = desk.submit().run_id
    desk.claim(run_id, "w1")
    with pytest.raises(NothingToDo, match="is running"):
        desk.claim(run_id, "w2")


def test_a_run_that_is_not_at_the_head_leaves_the_lane_as_it_was(desk: Desk) -> None:
    first, second = desk.submit().run_id, desk.submit().run_id
    before = desk.client.zrange(keys.lane(desk.thread), 0, -1, withscores=True)
    with pytest.raises(NothingToDo, match="is not at the head"):
        desk.claim(second)
    assert desk.client.zrange(keys.lane(desk.thread), 0, -1, withscores=True) == before
    assert [name.decode() for name, _ in before] == [first, second]


def test_a_claim_whose_reply_was_lost_is_given_again(desk: Desk) -> None:
    run_id = desk.submit().run_id
    first = desk.claim(run_id, "w1", activation="7")
    desk.send("m1", "psst")
    desk.now += LEASE - 1
    again = desk.claim(run_id, "w1", activation="7")
    assert (again.fence, again.lease_until) == (first.fence, desk.now + LEASE)
    assert [mail.id for mail in again.mail] == ["m1"]
    for worker, activation in (("w1", "8"), ("w2", "7"), ("w1", "")):
        with pytest.raises(NothingToDo, match="is running"):
            desk.claim(run_id, worker, activation=activation)
    owner = desk.owner(run_id, again.fence)
    desk.commit(owner)
    desk.release(owner)
    assert desk.claim(run_id, "w1", activation="7").fence > first.fence, "given back, it is claimed anew"
    assert desk.record(run_id).attempts == 0


def test_a_claim_that_was_taken_over_is_not_given_again(desk: Desk) -> None:
    run_id = desk.submit().run_id
    desk.claim(run_id, "w1", activation="7")
    desk.now += LEASE + 1
    desk.look()
    desk.claim(run_id, "w2", activation="7")
    with pytest.raises(NothingToDo, match="is running"):
        desk.claim(run_id, "w1", activation="7")


def test_a_server_that_forgot_a_claim_does_not_give_its_fence_out_again(desk: Desk) -> None:
    """Power was lost, and with it the last second: the worker of before comes back with a claim nobody knows."""
    run_id = desk.submit().run_id
    places = [keys.thread(desk.thread), keys.run(desk.thread, run_id), keys.lane(desk.thread)]
    before = {key: desk.client.dump(key) for key in places}
    old = desk.owner(run_id, desk.claim(run_id, "w1").fence)
    desk.client.delete(keys.lock(desk.thread))
    for key, value in before.items():
        desk.client.restore(key, 0, value, replace=True)
    desk.now += 1
    new = desk.owner(run_id, desk.claim(run_id, "w2").fence)
    with pytest.raises(FenceLost):
        desk.commit(old, Batch(1))
    assert desk.commit(new, Batch(1)).outcome == "committed"


def test_doorbells_without_an_answer(desk: Desk) -> None:
    owner = desk.started()
    queued = desk.submit().run_id
    for run_id in ("ghost", owner.run_id, queued):
        with pytest.raises(NothingToDo, match=run_id):
            desk.claim(run_id)
    desk.finish(owner)
    with pytest.raises(NothingToDo, match="is done"):
        desk.claim(owner.run_id)


def test_a_lease_ends_strictly_after_lease_until(desk: Desk) -> None:
    owner = desk.started()
    desk.now += LEASE
    look = desk.look()
    assert (desk.status(owner.run_id), look.again) == ("running", desk.now + 1)
    desk.now += 1
    assert desk.look().doorbell is not None
    assert desk.status(owner.run_id) == "queued"


def test_a_renewal_extends_the_lease_and_tells_what_arrived(desk: Desk) -> None:
    owner = desk.started()
    desk.now += LEASE - 1
    desk.send()
    lease = desk.renew(owner)
    assert (lease.until, lease.cancel, lease.decisions, lease.mail) == (desk.now + LEASE, "", 0, 1)
    desk.now += LEASE
    assert desk.look().doorbell is None


def test_a_lease_that_ran_out_unnoticed_may_be_renewed(desk: Desk) -> None:
    owner = desk.started()
    desk.now += 3 * LEASE
    desk.client.delete(keys.lock(desk.thread))
    assert desk.renew(owner).until == desk.now + LEASE
    assert desk.look().doorbell is None
    assert desk.commit(owner).outcome == "committed"


def test_a_worker_that_slept_through_a_takeover_can_do_nothing(desk: Desk) -> None:
    slept = desk.started(worker="sleeper")
    desk.commit(slept)
    desk.now += LEASE + 1
    desk.look()

    def refused() -> None:
        for attempt in (desk.commit, desk.renew, desk.finish, desk.release, desk.suspend):
            with pytest.raises(FenceLost, match="this activation is over"):
                attempt(slept)

    refused()  # taken back, not yet taken over
    fresh = desk.owner(slept.run_id, desk.claim(slept.run_id, "other").fence)
    before = desk.record(slept.run_id)
    refused()
    assert desk.record(slept.run_id) == before
    assert desk.run(lock.holder(desk.thread)) is not None
    desk.finish(fresh)
    refused()
    assert len(desk.terminal(slept.run_id)) == 1


def test_a_drained_run_goes_back_free_of_charge(desk: Desk) -> None:
    owner = desk.started()
    desk.commit(owner, Batch(1, step=1, run_fields={"step": 1}))
    released = desk.release(owner)
    assert released.outcome == "queued"
    assert released.doorbell is not None
    assert desk.release(owner).outcome == "again"
    record = desk.record(owner.run_id)
    assert (record.status, record.attempts, record.step, record.worker) == ("queued", 0, 1, None)
    assert desk.run(lock.holder(desk.thread)) is None
    assert desk.claim(owner.run_id).fence == owner.fence + 1


def test_a_released_run_keeps_its_place_before_the_lane(desk: Desk) -> None:
    owner = desk.started()
    urgent = desk.submit(priority=0).run_id
    desk.release(owner)
    with pytest.raises(NothingToDo):
        desk.claim(urgent)
    desk.claim(owner.run_id)


def test_a_failed_attempt_is_charged_delayed_and_finally_fatal(desk: Desk) -> None:
    owner = desk.started()
    for attempt in (1, 2):
        assert desk.release(owner, Failure(desk.now + 250, 3)).outcome == "queued"
        assert desk.record(owner.run_id).attempts == attempt
        with pytest.raises(NothingToDo, match="not due"):
            desk.claim(owner.run_id)
        desk.now += 250
        assert desk.look().doorbell is not None
        owner = desk.owner(owner.run_id, desk.claim(owner.run_id).fence)
    assert desk.release(owner, Failure(desk.now + 250, 3)).outcome == "done"
    (terminal,) = desk.terminal(owner.run_id)
    assert (terminal["termination"], terminal["code"]) == ("error", "attempts_exhausted")
    assert desk.client.zscore(keys.DEAD, owner.run_id) == desk.now


def test_verbs_on_a_run_that_never_was(desk: Desk) -> None:
    desk.submit()
    ghost = desk.owner("ghost", 1)
    with pytest.raises(RunNotFound):
        desk.commit(ghost, Batch(1))
    with pytest.raises(FenceLost, match="gone"):
        desk.renew(ghost)
    with pytest.raises(FenceLost, match="gone"):
        desk.release(ghost)


def test_a_commit_must_follow_its_predecessor(desk: Desk) -> None:
    owner = desk.started()
    with pytest.raises(CommitGap, match="has 0 commits"):
        desk.commit(owner, Batch(2))

"""Runs that have something at work elsewhere: only a worker can stop that, so a stop always finds one."""

from typing import Any

import pytest

from postroom.mailbox import keys, lock
from postroom.mailbox.commit import Owner
from postroom.mailbox.errors import FenceLost, NothingToDo
from tests.mailbox.desk import LEASE, Desk


def abroad(desk: Desk, **more: Any) -> Owner:
    """A run that has asked a remote agent."""
    owner = desk.started(**more)
    batch = desk.batch(owner)
    batch.run_fields["remote"] = 1
    desk.commit(owner, batch)
    return owner


def rung(desk: Desk) -> int:
    return int(desk.client.llen(f"rq:queue:{desk.queue}"))


def stopped(desk: Desk, owner: Owner, code: str) -> None:
    """The run is queued with the wish that it end, somebody was rung for, and a worker can end it."""
    assert desk.status(owner.run_id) == "queued"
    assert desk.terminal(owner.run_id) == []
    claim = desk.claim(owner.run_id, "w2")
    assert claim.run["cancel"] == code.encode()
    again = desk.owner(owner.run_id, claim.fence)
    desk.finish(again, "cancelled", code=code)
    (end,) = desk.terminal(owner.run_id)
    assert end["code"] == code


def test_one_that_waits_is_given_a_worker_to_be_cancelled(desk: Desk) -> None:
    owner = abroad(desk)
    desk.suspend(owner)
    before = rung(desk)
    assert desk.cancel(owner.run_id).outcome == "requested"
    assert rung(desk) == before + 1
    assert desk.cancel(owner.run_id).outcome == "requested", "a second time changes nothing"
    assert rung(desk) == before + 1
    stopped(desk, owner, "cancelled")


def test_one_that_nothing_is_at_work_for_ends_at_once(desk: Desk) -> None:
    owner = desk.started()
    desk.suspend(owner)
    assert desk.cancel(owner.run_id).outcome == "cancelled"


def test_an_interrupt_waits_until_it_has_ended(desk: Desk) -> None:
    owner = abroad(desk)
    desk.suspend(owner)
    successor = desk.submit(on_busy="interrupt")
    assert successor.ended == []
    with pytest.raises(NothingToDo):
        desk.claim(successor.run_id)
    stopped(desk, owner, "interrupted")
    desk.claim(successor.run_id)


def test_a_deadline_does_not_keep_the_worker_away_that_ends_it(desk: Desk) -> None:
    owner = abroad(desk, deadline=desk.now + 1_000)
    desk.suspend(owner)
    desk.now += 1_001
    desk.look()
    stopped(desk, owner, "deadline")


@pytest.mark.parametrize("how", ["died", "gave it back"])
def test_a_worker_that_leaves_before_it_has_ended_leaves_that_to_the_next(desk: Desk, how: str) -> None:
    owner = abroad(desk)
    assert desk.cancel(owner.run_id).outcome == "requested"
    if how == "died":
        desk.now += LEASE + 1
        desk.look()
    else:
        desk.release(owner)
    stopped(desk, owner, "cancelled")


def test_one_whose_worker_is_gone_unnoticed_is_stopped_all_the_same(desk: Desk) -> None:
    owner = abroad(desk)
    desk.now += LEASE + 1
    assert desk.cancel(owner.run_id).outcome == "requested"
    with pytest.raises(FenceLost):
        desk.commit(owner)
    stopped(desk, owner, "cancelled")


def test_newer_words_go_on_with_what_waits(desk: Desk) -> None:
    owner = abroad(desk)
    desk.suspend(owner)
    successor = desk.submit()
    assert successor.ended == [owner.run_id], "what was asked elsewhere is the next run's to answer"
    desk.claim(successor.run_id)


def test_one_that_crashes_too_often_is_given_up(desk: Desk) -> None:
    owner = abroad(desk)
    desk.client.hset(keys.run(desk.thread, owner.run_id), "attempts", desk.settings.max_attempts - 1)
    desk.cancel(owner.run_id)
    failure = lock.Failure(desk.now, desk.settings.max_attempts)
    assert desk.release(owner, failure).outcome == "done"

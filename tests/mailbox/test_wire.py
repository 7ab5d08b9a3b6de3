"""Transitions that stand next to each other leave as one call, and each gets the reply it would have got alone."""

from typing import Any

import pytest
from redis.exceptions import ResponseError

from postroom.mailbox import commit, journal, keys, lane, lock, ops, records, wire
from postroom.mailbox.commit import Batch
from postroom.mailbox.contracts import RunRequest, Termination, message
from postroom.mailbox.errors import FenceLost, NothingToDo
from postroom.mailbox.lifecycle import TerminationKind
from postroom.mailbox.settings import Settings
from tests.mailbox.desk import LEASE, Desk

DONE = Termination(kind=TerminationKind.NATURAL_END)


def packed(*commands: wire.Command) -> list[wire.Packed]:
    return [wire.pack(command) for command in commands]


def renewal(thread: str = "t", worker: str = "r1") -> wire.Command:
    return lock.renew(thread, worker, 1, LEASE).command


class TestCalls:
    def test_neighbours_go_together_and_others_stay_in_their_places(self) -> None:
        other = ("GET", "x")
        found = list(wire.calls(packed(renewal(), renewal(), other, renewal(), other, other)))
        assert [call.commands for call in found] == [2, 1, 1, 1, 1]
        assert [call.sent for call in found[1:]] == [wire.pack(each).alone for each in (other, renewal(), other, other)]

    def test_what_goes_together_is_said_word_for_word(self) -> None:
        (call,) = wire.calls(packed(renewal("a"), renewal("ü")))
        words = call.sent.split(b"\r\n")[2::2]
        assert words[0] == b"FCALL"
        assert words[2] == b"0"
        assert words[3:] == [
            word
            for thread in ("a", "ü")
            for word in (b"renew", b"4", keys.thread(thread).encode(), b"", b"r1", b"1", str(LEASE).encode())
        ]
        assert call.sent.startswith(b"*%d\r\n" % len(words))

    def test_a_call_is_only_so_large(self) -> None:
        found = list(wire.calls(packed(*[renewal()] * (2 * wire.MOST_TOGETHER + 1))))
        assert [call.commands for call in found] == [wire.MOST_TOGETHER, wire.MOST_TOGETHER, 1]
        large = (*renewal()[:-1], "1" * wire.LARGE)
        assert [call.commands for call in wire.calls(packed(renewal(), large, renewal()))] == [1, 1, 1]

    def test_what_went_wrong_with_the_call_went_wrong_for_all(self) -> None:
        error = ResponseError("Function not found")
        assert list(wire.Call(b"", 3).replies(error)) == [error] * 3
        assert [type(each) for each in wire.Call(b"", 2).replies([1])] == [ResponseError, ResponseError]
        assert list(wire.Call(b"", 1).replies([1, 2])) == [[1, 2]]


def requests(desks: list[Desk]) -> list[RunRequest]:
    said = (message("user", "x"),)
    return [RunRequest(run_id=each.new_run(), thread_id=each.thread, messages=said, queue=each.queue) for each in desks]


def test_each_of_them_has_its_own_reply_or_error(desk: Desk) -> None:
    desks = [Desk(desk.client) for _ in range(5)]
    asked = requests(desks)
    submitted = ops.run_all(desk.client, [lane.submit(each, Settings(), desk.now) for each in (*asked, asked[0])])
    assert [each.outcome for each in submitted] == ["queued"] * 5 + ["again"]
    claims: list[Any] = [
        lock.claim(each.thread_id, each.run_id, "w", LEASE, now=desk.now) for each in (*asked, asked[0])
    ]
    *held, refused = ops.run_all(desk.client, claims)
    assert isinstance(refused, NothingToDo)
    owners = [commit.Owner(each.thread_id, each.run_id, claim.fence) for each, claim in zip(asked, held, strict=True)]
    stale = commit.Owner(owners[2].thread_id, owners[2].run_id, 1)
    ends = [commit.finish(each, Batch(1, step=1), DONE, now=desk.now) for each in (*owners[:2], stale, *owners[2:])]
    outcomes = ops.run_all(desk.client, ends)
    assert [isinstance(each, FenceLost) for each in outcomes] == [False, False, True, False, False, False]
    assert [ops.run(desk.client, records.get_run(each.thread_id, each.run_id)).status for each in asked] == ["done"] * 5
    assert [each.watched() for each in desks] == [None] * 5
    assert not desk.client.exists(*(keys.lock(each.thread) for each in desks))


def test_one_that_meets_a_broken_key_spoils_no_other(desk: Desk) -> None:
    desks = [Desk(desk.client) for _ in range(3)]
    desk.client.set(keys.thread(desks[1].thread), "not a hash")
    first, broken, last = ops.run_all(
        desk.client, [lane.submit(each, Settings(), desk.now) for each in requests(desks)]
    )
    assert (first.outcome, last.outcome) == ("queued", "queued")
    assert isinstance(broken, ResponseError)
    assert "WRONGTYPE" in str(broken)
    assert [each.watched() for each in desks] == [desk.now + 5_000, None, desk.now + 5_000]


def test_a_lock_given_up_in_a_call_is_not_there_for_those_behind_it(desk: Desk) -> None:
    owner = desk.started()
    following = desk.submit().run_id
    ended, renewed, taken = ops.run_all(
        desk.client,
        [
            commit.finish(owner, Batch(1, step=1), DONE, now=desk.now),
            lock.renew(owner.thread_id, owner.run_id, owner.fence, LEASE, desk.now),
            lock.claim(owner.thread_id, following, "other", LEASE, now=desk.now),
        ],
    )
    assert ended.outcome == "finished"
    assert isinstance(renewed, FenceLost)
    assert ops.run(desk.client, lock.holder(desk.thread)) == lock.Holder(
        following, "other", taken.fence, desk.now + LEASE
    )
    assert desk.watched() == desk.now + 5_000  # for the doorbell that rang


@pytest.mark.parametrize("after", range(5))
def test_events_told_together_are_read_from_any_of_them(desk: Desk, after: int) -> None:
    owner = desk.started()
    batch = Batch(1, step=1)
    for words in "abc":
        batch.tell({"type": "text_delta", "delta": words})
    desk.finish(owner, batch=batch)
    assert desk.client.xlen(keys.events(desk.thread, owner.run_id)) == 1
    found = desk.events(owner.run_id)
    assert [event["type"] for event in found] == ["text_delta"] * 3 + ["run_finish"]
    behind = desk.run(journal.read(desk.thread, owner.run_id, after))
    assert [(each.number, each.event) for each in behind] == [(n + 1, found[n]) for n in range(after, 4)]
    assert desk.run(journal.read(desk.thread, owner.run_id, after, 1)) == behind  # an entry is read whole


def test_what_all_threads_share_may_be_broken_for_those_alone_who_write_it(desk: Desk) -> None:
    """Renewals and commits do not write it; whoever would is told."""
    owner = desk.started()
    dead = Desk(desk.client)
    broken = dead.started()
    listing = dict(desk.client.zscan_iter(keys.DEAD))
    desk.client.set(keys.DEAD, "junk")
    try:
        error = Termination(kind=TerminationKind.ERROR, code="x", message="y")
        renewed, ended, committed = ops.run_all(
            desk.client,
            [
                lock.renew(owner.thread_id, owner.run_id, owner.fence, LEASE, desk.now),
                commit.finish(broken, Batch(1, step=1), error, now=desk.now),
                commit.commit(owner, Batch(1, step=1), now=desk.now),
            ],
        )
    finally:
        desk.client.delete(keys.DEAD)
        if listing:
            desk.client.zadd(keys.DEAD, listing)
    assert renewed.until == desk.now + LEASE
    assert isinstance(ended, ResponseError)
    assert committed.outcome == "committed"
    assert dead.watched() is None


def test_a_run_whose_journal_is_broken_has_not_ended(desk: Desk) -> None:
    owner = desk.started()
    desk.client.set(keys.events(desk.thread, owner.run_id), "junk")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        desk.finish(owner, batch=Batch(1, step=1).tell({"type": "step_start"}))
    assert desk.status(owner.run_id) == "running"
    assert ops.run(desk.client, lock.holder(desk.thread)) is not None

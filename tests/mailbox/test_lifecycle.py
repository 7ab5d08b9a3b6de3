"""The state machines, over the whole product of each, in Python and through the scripts."""

import itertools
from collections.abc import Callable

import pytest

from postroom.mailbox import lifecycle
from postroom.mailbox.commit import Batch, Owner
from postroom.mailbox.errors import FenceLost, MoveRefused, NothingToDo, PostroomError
from postroom.mailbox.lifecycle import CALL, RUN, TICKET, CallStatus, RunStatus, TicketStatus, may_move, move
from tests.mailbox.desk import LEASE, Desk

# The moves, written a second time on purpose: a change to a table must be meant.
RUN_MOVES = {
    "queued": {"running", "done"},
    "running": {"queued", "waiting", "done"},
    "waiting": {"queued", "done"},
    "done": set(),
}
CALL_MOVES = {
    "new": {"running", "suspended", "resuming", "succeeded", "failed", "cancelled"},
    "running": {"suspended", "succeeded", "failed", "cancelled"},
    "suspended": {"resuming", "succeeded", "failed", "cancelled"},
    "resuming": {"running", "suspended", "succeeded", "failed", "cancelled"},
    "succeeded": set(),
    "failed": set(),
    "cancelled": set(),
}
TICKET_MOVES = {"open": {"decided", "expired"}, "decided": set(), "expired": set()}


@pytest.mark.parametrize(
    ("table", "statuses", "moves"),
    [(RUN, RunStatus, RUN_MOVES), (CALL, CallStatus, CALL_MOVES), (TICKET, TicketStatus, TICKET_MOVES)],
)
def test_every_pair_is_a_move_or_refused(
    table: dict[str, frozenset[str]], statuses: type[RunStatus], moves: dict[str, set[str]]
) -> None:
    assert set(table) == set(statuses) == set(moves)
    for old, new in itertools.product(statuses, statuses):
        allowed = new == old or new in moves[old]
        assert may_move(table, old, new) is allowed
        if allowed:
            assert move(table, old, new) == new
        else:
            with pytest.raises(MoveRefused, match=f"from {old} to {new}"):
                move(table, old, new)


def test_a_finished_call_is_one_that_goes_nowhere() -> None:
    assert {"succeeded", "failed", "cancelled"} == lifecycle.CALL_DONE


def brought_to(desk: Desk, status: str) -> Owner:
    owner = desk.started()
    if status == "queued":
        desk.release(owner)
    elif status == "waiting":
        desk.suspend(owner)
    elif status == "done":
        desk.finish(owner)
    assert desk.status(owner.run_id) == status
    return owner


# Each way to ask for a status, whoever may ask. A run that refuses the move must be exactly as it was.
ASKS: dict[str, list[Callable[[Desk, Owner], object]]] = {
    "queued": [
        lambda desk, owner: desk.release(Owner(owner.thread_id, owner.run_id, owner.fence)),
        lambda desk, owner: desk.send(),
        lambda desk, owner: _look_later(desk),
    ],
    "running": [lambda desk, owner: desk.claim(owner.run_id, "w2")],
    "waiting": [lambda desk, owner: desk.suspend(owner)],
    "done": [lambda desk, owner: desk.finish(owner), lambda desk, owner: _cancel_unheld(desk, owner)],
}


def _look_later(desk: Desk) -> None:
    desk.now += LEASE + 1
    desk.look()


def _cancel_unheld(desk: Desk, owner: Owner) -> None:
    desk.now += LEASE + 1
    desk.cancel(owner.run_id)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(RunStatus, RunStatus)))
def test_the_scripts_make_the_same_run_moves(desk: Desk, old: str, new: str) -> None:
    reached = []
    for ask in ASKS[new]:
        owner = brought_to(Desk(desk.client), old)
        own = Desk(desk.client)
        own.thread = owner.thread_id
        before = own.record(owner.run_id)
        try:
            ask(own, owner)
        except (FenceLost, NothingToDo, PostroomError):
            assert own.record(owner.run_id) == before
        reached.append(own.status(owner.run_id))
    if old == new:
        assert set(reached) == {old}
    elif new in RUN_MOVES[old]:
        assert new in reached
    else:
        assert new not in reached


@pytest.mark.parametrize(("old", "new"), list(itertools.product(CallStatus, CallStatus)))
def test_the_scripts_make_the_same_call_moves(desk: Desk, old: CallStatus, new: CallStatus) -> None:
    owner = desk.started()
    desk.commit(owner, Batch(1).note_call("c", old))
    attempt = Batch(2).note_call("c", new).tell({"type": "step_start"})
    if new == old or new in CALL_MOVES[old]:
        assert desk.commit(owner, attempt).outcome == "committed"
    else:
        with pytest.raises(MoveRefused, match=f"from {old.value} to {new.value}"):
            desk.commit(owner, attempt)
        assert desk.events(owner.run_id) == []  # refused whole, not half


@pytest.mark.parametrize(("old", "new"), list(itertools.product(TicketStatus, ["decided", "expired"])))
def test_the_scripts_make_the_same_ticket_moves(desk: Desk, old: TicketStatus, new: str) -> None:
    owner = desk.started()
    ticket = {"id": "k", "call_id": "c", "tool": "pay", "expires_at": desk.now + 5}
    desk.suspend(owner, lifecycle.WaitingReason.APPROVAL, desk.now + 6, Batch(1).raise_ticket("c", ticket))
    calls = f"postroom:{{{desk.thread}}}:run:{owner.run_id}:calls"
    if old is TicketStatus.DECIDED:
        desk.decide(owner.run_id, "k", "first")
    elif old is TicketStatus.EXPIRED:
        desk.now += 6
        desk.look()
    if new == "decided":
        try:
            desk.decide(owner.run_id, "k", "second")
        except PostroomError as error:
            assert error.code in {"already_decided", "ticket_expired"}
    else:
        desk.now += 6
        desk.look()
    found = desk.client.hget(calls, "ticket:c")
    assert found == (new if new == old or new in TICKET_MOVES[old] else old.value).encode()

"""Carrying out what a thread owes to others: mail, runs to submit or cancel, reports to parents.

A plan like any other, so that the worker whose commit wrote the errands, the sweep and a client all do the same. To
one recipient they go in the order they were written, each after the one before has been accepted or given up; to
several they go side by side. Two that carry out at the same time do no harm: whatever an errand does, it does once.
"""

import logging
from collections.abc import Callable
from typing import Any

from postroom.dispatcher import reports
from postroom.dispatcher.plans import Plan, all_of, one
from postroom.mailbox import errands, inbox, lane, records, watch
from postroom.mailbox.connect import LOST_CONNECTION
from postroom.mailbox.contracts import Letter, RunRecord, RunRequest, parse
from postroom.mailbox.errands import Errand, Kind
from postroom.mailbox.errors import NotFound, PostroomError
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings

log = logging.getLogger(__name__)

PAGE = 500
# What is refused for now is tried again after a second, then twice as long each time, a dozen times: some six minutes.
FIRST_WAIT_MS, LONGEST_WAIT_MS, MOST_TRIES = 1_000, 60_000, 12
# What an errand cannot do because it has become pointless.
_MOOT: dict[Kind, tuple[type[PostroomError], ...]] = {
    Kind.CANCEL: (NotFound,),
    Kind.REPORT: reports.MOOT,
}


def carry_out(settings: Settings, /, thread: str) -> Plan[int]:
    """Carries out the errands of a thread that are due; says how many are left."""
    ended: list[str] = []
    while True:
        raw, held, now = yield from all_of([errands.waiting(thread, PAGE), errands.put_off(thread), watch.clock()])
        found = errands.read(raw, held)
        done, later, lost = yield from _rounds(settings, thread, found, now, ended)
        if not (done or later or lost):
            left = len(found)
            break
        left = yield from one(errands.settle(thread, done, later, lost))
        if not left or len(found) < PAGE:
            break
    for other in ended:
        yield from carry_out(settings, other)
    return left


Settled = tuple[list[int], list[tuple[int, int]], list[tuple[int, str]]]


def _rounds(settings: Settings, thread: str, found: list[Errand], now: int, ended: list[str]) -> Plan[Settled]:
    """Round after round, the next errand to each recipient; one that must wait keeps those behind it waiting."""
    queues: dict[str, list[Errand]] = {}
    for errand in found:
        queues.setdefault(errand.to, []).append(errand)
    done: list[int] = []
    later: list[tuple[int, int]] = []
    lost: list[tuple[int, str]] = []
    while heads := [queue.pop(0) for queue in queues.values() if queue and queue[0].due <= now]:
        queues = {head.to: queues[head.to] for head in heads}
        outcomes = yield from _attempt(settings, thread, heads)
        for head, outcome in zip(heads, outcomes, strict=True):
            if not isinstance(outcome, BaseException) or isinstance(outcome, _MOOT.get(head.kind, ())):
                done.append(head.number)
                if head.kind is Kind.REPORT and not isinstance(outcome, BaseException):
                    yield from _bubble(thread, head)
                if isinstance(outcome, lane.Cancelled) and outcome.outcome == "cancelled":
                    ended.append(head.to)
                continue
            if isinstance(outcome, LOST_CONNECTION):
                raise outcome
            if _passes(outcome) and head.tries + 1 < MOST_TRIES:
                later.append((head.number, min(FIRST_WAIT_MS * 2**head.tries, LONGEST_WAIT_MS)))
                del queues[head.to]
                continue
            log.warning("errand %s to %r given up: %s", head.id, head.to, outcome)
            if head.kind is Kind.SUBMIT and head.child:
                yield from _disappoint(settings, head, outcome)
                done.append(head.number)
            else:
                lost.append((head.number, _words(outcome)))
    return done, later, lost


def _attempt(settings: Settings, thread: str, heads: list[Errand]) -> Plan[list[Any]]:
    """What became of each errand: a value or an error."""
    reading = [reports.facts(thread, head) if head.kind is Kind.REPORT else [] for head in heads]
    facts = yield [op for each in reading for op in each]
    ops: list[Op[Any] | BaseException | None] = []
    for head, asked in zip(heads, reading, strict=True):
        known, facts = facts[: len(asked)], facts[len(asked) :]
        ops.append(_prepared(settings, head, known))
    values = iter((yield [op for op in ops if isinstance(op, Op)]))
    return [next(values) if isinstance(op, Op) else op for op in ops]


def _prepared(settings: Settings, errand: Errand, facts: list[Any]) -> Op[Any] | BaseException | None:
    try:
        return _VERBS[errand.kind](settings, errand, facts)
    except Exception as error:
        return error


def _mail(settings: Settings, errand: Errand, _: list[Any]) -> Op[Any]:
    return inbox.send(parse(Letter, errand.body), settings)


def _submit(settings: Settings, errand: Errand, _: list[Any]) -> Op[Any]:
    return lane.submit(parse(RunRequest, errand.body), settings)


def _cancel(settings: Settings, errand: Errand, _: list[Any]) -> Op[Any]:
    return lane.cancel(errand.to, errand.run, errand.code or "cancelled")


_VERBS: dict[Kind, Callable[[Settings, Errand, list[Any]], Op[Any] | None]] = {
    Kind.MAIL: _mail,
    Kind.SUBMIT: _submit,
    Kind.CANCEL: _cancel,
    Kind.REPORT: reports.reported,
}


def _bubble(thread: str, errand: Errand) -> Plan[None]:
    """What a child waits for is shown to all above its parent, too: somewhere up there is a person."""
    known = yield reports.facts(thread, errand)
    told = reports.waiting_event(known)
    while told:
        (record,) = yield [records.get_run(told.parent.thread_id, told.parent.run_id)]
        told = told.above(record) if isinstance(record, RunRecord) else None
        if told:
            yield [told.relay()]


def _disappoint(settings: Settings, errand: Errand, error: BaseException) -> Plan[None]:
    """A child that could not even be started has failed; its parent must not wait for it."""
    request = parse(RunRequest, errand.body)
    yield [reports.never_started(settings, request, _words(error))]


def _passes(error: BaseException) -> bool:
    """Whether the same errand may succeed later; what a server complains of in its own words may."""
    return error.retryable if isinstance(error, PostroomError) else not isinstance(error, ValueError | TypeError)


def _words(error: BaseException) -> str:
    return f"{error.code}: {error.message}" if isinstance(error, PostroomError) else f"{type(error).__name__}: {error}"

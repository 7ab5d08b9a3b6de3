"""Plans that wait: for the events of a run, for its end."""

import time
from collections.abc import Generator, Iterable
from typing import Any

from postroom.dispatcher.plans import Plan, get_run, one
from postroom.mailbox import journal, records
from postroom.mailbox.contracts import RunRecord
from postroom.mailbox.errors import EventsTrimmed, InvalidInput, WaitTimeout
from postroom.mailbox.journal import Entry
from postroom.mailbox.lifecycle import TERMINAL
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings

# A plan that has something to show before it is over: entries among its lists of ops.
Stream = Generator[Iterable[Op[Any]] | Entry, Any, None]
# How long one blocking read lasts; a run that never says anything is looked at again after this.
PATIENCE_MS = 5_000
# Longer than anybody's patience.
LONGEST_S = 10**9
# Beyond this a stream has no numbers of ours.
MOST_EVENTS = 2**53
_SETTLED = frozenset({"done", "waiting"})


def events(settings: Settings, /, run_id: str, after: int = 0, *, live: bool = True) -> Stream:
    """Events behind a number, then those to come, until the run has ended; resume with the last number seen."""
    if not isinstance(after, int) or not 0 <= after <= MOST_EVENTS:
        raise InvalidInput(f"after {after!r} must be the number of an event that was seen, or 0")
    thread_id = yield from one(records.thread_of(run_id))
    first = True
    while True:
        found = yield from one(journal.read(thread_id, run_id, after))
        if not found:
            record = yield from get_run(settings, run_id)
            if first and record.events < after:
                raise InvalidInput(f"run {run_id} has told {record.events} events, so number {after} was never seen")
            if record.events > after:
                # Told since we looked, or gone from the journal; waiting would bring neither.
                found = yield from _told(thread_id, run_id, after, record.events)
            elif not live or record.status == "done":
                return
            else:
                found = yield from one(journal.follow(thread_id, run_id, after, PATIENCE_MS))
        for entry in found:
            yield entry
            after = entry.number
            if entry.event["type"] == TERMINAL:
                return
        first = False


def _told(thread_id: str, run_id: str, after: int, last: int) -> Plan[list[Entry]]:
    """Events that were told for sure, or the error that they are gone."""
    found = yield from one(journal.read(thread_id, run_id, after))
    if not found:
        raise EventsTrimmed(f"events {after + 1} to {last} of run {run_id} are gone with its journal; see its messages")
    return found


def wait(settings: Settings, /, run_id: str, timeout: float | None = None) -> Plan[RunRecord]:
    """The run's record once it is done or waits for somebody."""
    if timeout is not None and (not isinstance(timeout, int | float) or timeout != timeout):  # as only NaN is
        raise InvalidInput(f"timeout {timeout!r} must be seconds, or None to wait for ever")
    until = None if timeout is None else time.monotonic() + max(0, min(timeout, LONGEST_S))
    while True:
        record = yield from get_run(settings, run_id)
        if record.status in _SETTLED:
            return record
        yield from one(journal.follow(record.thread_id, run_id, record.events, _patience(run_id, until)))


def _patience(run_id: str, until: float | None) -> int:
    """Milliseconds to wait in one read, or the error that the caller's time is over."""
    if until is None:
        return PATIENCE_MS
    left = int((until - time.monotonic()) * 1000)
    if left <= 0:
        raise WaitTimeout(f"run {run_id} has neither ended nor come to wait in time; it goes on, ask again")
    return min(left, PATIENCE_MS)

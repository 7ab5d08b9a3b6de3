"""Plans that wait: for the events of a run, for its end."""

import time
from collections.abc import Generator, Iterable
from typing import Any

from postroom.dispatcher.plans import Plan, get_run, one
from postroom.mailbox import journal, records
from postroom.mailbox.contracts import RunRecord
from postroom.mailbox.errors import WaitTimeout
from postroom.mailbox.journal import Entry
from postroom.mailbox.lifecycle import TERMINAL
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings

# A plan that has something to show before it is over: entries among its lists of ops.
Stream = Generator[Iterable[Op[Any]] | Entry, Any, None]
# How long one blocking read lasts; a run that never says anything is looked at again after this.
PATIENCE_MS = 5_000
_SETTLED = frozenset({"done", "waiting"})


def events(settings: Settings, /, run_id: str, after: int = 0, *, live: bool = True) -> Stream:
    """Events behind a number, then those to come, until the run has ended; resume with the last number seen."""
    thread_id = yield from one(records.thread_of(run_id))
    while True:
        found = yield from one(journal.read(thread_id, run_id, after))
        if not found:
            record = yield from get_run(settings, run_id)
            if not live or (record.status == "done" and record.events <= after):
                return
            found = yield from one(journal.follow(thread_id, run_id, after, PATIENCE_MS))
        for entry in found:
            yield entry
            after = entry.number
            if entry.event["type"] == TERMINAL:
                return


def wait(settings: Settings, /, run_id: str, timeout: float | None = None) -> Plan[RunRecord]:
    """The run's record once it is done or waits for somebody."""
    until = None if timeout is None else time.monotonic() + timeout
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

"""The plan of a fork: a new thread from any point of another one, with the state as it was there if that is known."""

from collections.abc import Mapping
from dataclasses import dataclass

from postroom.dispatcher.plans import Plan, all_of, messages, one
from postroom.mailbox import codec, forks, journal, records
from postroom.mailbox.backends import TASK_PREFIX
from postroom.mailbox.errors import EventsTrimmed, InvalidInput
from postroom.mailbox.grants import PREFIX
from postroom.mailbox.ids import new_id
from postroom.mailbox.log import Entry
from postroom.mailbox.ops import Fields
from postroom.mailbox.settings import Settings

# How many runs back the state is looked for.
MOST_RUNS = 32


@dataclass(frozen=True, slots=True)
class Forked:
    """A thread that goes on from another one.

    `at` is the last sequence number it took over, which is before the point asked for when that lay between a call and
    its result. `state` is `snapshot` when it is as of there, `present` when only what the thread has now was to be had.
    """

    outcome: str
    thread_id: str
    parent: str
    at: int
    messages: int
    state: str
    agent: str


def fork(
    settings: Settings,
    /,
    thread: str,
    *,
    at: int | None = None,
    run: str | None = None,
    step: int | None = None,
    to: str | None = None,
    agent: str | None = None,
    grants: bool = False,
) -> Plan[Forked]:
    """Begins a thread with what was said on another: up to a sequence number, or to the end of a run or its step.

    What a person had allowed for good by then is taken along only with `grants`.
    """
    record, present = yield from all_of([records.get_thread(thread), records.get_state(thread)])
    entries = yield from messages(settings, thread, raw=True)
    seq, said = forks.readable(entries, _until(thread, entries, at, run, step))
    snapshot = yield from _snapshot(thread, [each for each in entries if each.seq <= seq])
    state = _state(present, snapshot if seq < record.seq else None)
    if grants:
        state |= _granted(present, max((each.at for each in said), default=0))
    origin = forks.Origin(thread, seq, agent or record.agent, record.queue)
    new = to or f"fork-{new_id()}"
    outcome = yield from one(forks.fork(new, origin, said, state, settings))
    known = "present" if snapshot is None or seq == record.seq else "snapshot"
    return Forked(outcome, new, thread, seq, len(said), known, origin.agent)


def _until(thread: str, entries: list[Entry], at: int | None, run: str | None, step: int | None) -> int:
    """The sequence number that is meant."""
    if at is not None and run is not None:
        raise InvalidInput("give either a sequence number or a run, not both")
    if step is not None and run is None:
        raise InvalidInput("of which run is that a step? give the run")
    last = entries[-1].seq if entries else 0
    if run is None:
        if at is not None and not 0 <= at <= last:
            raise InvalidInput(f"thread {thread!r} has messages 1 to {last}, not {at}")
        return last if at is None else at
    found = [each.seq for each in entries if each.run == run and (step is None or each.step <= step)]
    if not found:
        where = f"step {step} of run {run}" if step is not None else f"run {run}"
        raise InvalidInput(f"nothing was said on thread {thread!r} up to {where}")
    return found[-1]


def _snapshot(thread: str, entries: list[Entry]) -> Plan[Mapping[str, object] | None]:
    """The last state that was told up to there; None when it was never told or the journal is gone."""
    last: dict[str, int] = {}
    for each in entries:
        if each.run:
            last.pop(each.run, None)
            last[each.run] = each.step
    for run, step in list(reversed(last.items()))[:MOST_RUNS]:
        found: Mapping[str, object] | None = None
        after = 0
        while True:
            try:
                page = yield from one(journal.read(thread, run, after))
            except EventsTrimmed:
                return found
            if not page:
                break
            after = page[-1].number
            told = [each.event for each in page if each.event["type"] == "state_snapshot"]
            found = next((each["snapshot"] for each in reversed(told) if each.get("step", 0) <= step), found)
        if found is not None:
            return found
    return None


def _state(present: Fields, snapshot: Mapping[str, object] | None) -> dict[str, bytes]:
    """The thread's state for the fork. What was allowed for good, or asked of remote agents, was so there."""
    own = {name: value for name, value in present.items() if not name.startswith((PREFIX, TASK_PREFIX))}
    if snapshot is None:
        return own
    # A snapshot shows the state of the run, too; which values are the thread's is known from what it has now.
    return {name: codec.encode(snapshot[name]) for name in own if name in snapshot}


def _granted(present: Fields, until: int) -> dict[str, bytes]:
    """What had been allowed for good by then."""
    found = {name: value for name, value in present.items() if name.startswith(PREFIX)}
    return {name: value for name, value in found.items() if codec.decode(value).get("at", 0) <= until}

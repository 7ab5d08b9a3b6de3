"""Plans that list: runs and threads page by page, and the fleet in numbers."""

from dataclasses import dataclass
from typing import Any

from postroom.dispatcher.doorbells import queue_keys
from postroom.dispatcher.plans import Plan, all_of, one
from postroom.mailbox import deliveries, fleet, keys, records
from postroom.mailbox.contracts import RunRecord, ThreadRecord
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings

MOST_PER_PAGE = 200
# How far one call looks for runs that fit; the cursor goes on from there.
MOST_PAGES = 20


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a listing; give `cursor` back to get the next part, None means that was all."""

    items: list[Any]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Stats:
    """The fleet in numbers."""

    runs: int
    threads: int
    watched: int
    dead: int
    owed: int
    undelivered: int
    stranded: int
    queues: dict[str, int]
    workers: list[fleet.Pulse]


def list_runs(
    settings: Settings,
    /,
    *,
    status: str | None = None,
    agent: str | None = None,
    thread: str | None = None,
    tenant: str | None = None,
    dead: bool = False,
    limit: int = 50,
    cursor: str | None = None,
) -> Plan[Page]:
    """Runs, newest first, those that fit every filter given."""
    wanted = {"status": status, "agent": agent, "thread_id": thread, "tenant": tenant}
    fitting: list[RunRecord] = []
    place = _place(limit, cursor)
    for _ in range(MOST_PAGES):
        names = yield from _names(keys.DEAD if dead else keys.RUNS, place)
        for run in (yield from _known(names)):
            place += 1
            if run and all(getattr(run, name) == value for name, value in wanted.items() if value):
                fitting.append(run)
            if len(fitting) == limit:
                return Page(fitting, str(place))
        if len(names) < MOST_PER_PAGE:
            return Page(fitting, None)
    return Page(fitting, str(place))


def _known(names: list[str]) -> Plan[list[RunRecord | None]]:
    """The record of each name, None where it has expired."""
    owners = yield [records.thread_of(name) for name in names]
    # A run whose index is gone has no record either; looking for it on a thread of no name finds that out.
    asked = [
        records.get_run(owner if isinstance(owner, str) else "", name)
        for owner, name in zip(owners, names, strict=True)
    ]
    found = yield asked
    return [run if isinstance(run, RunRecord) else None for run in found]


def list_threads(settings: Settings, /, *, limit: int = 50, cursor: str | None = None) -> Plan[Page]:
    """Threads, the latest active first."""
    place = _place(limit, cursor)
    names = (yield from _names(keys.THREADS, place))[:limit]
    found = yield [records.get_thread(name) for name in names]
    known = [thread for thread in found if isinstance(thread, ThreadRecord)]
    return Page(known, str(place + limit) if len(names) == limit else None)


def list_undelivered(settings: Settings, /, *, limit: int = 50, cursor: str | None = None) -> Plan[Page]:
    """Deliveries to webhooks that were given up, the latest first."""
    place = _place(limit, cursor)
    names = (yield from _names(keys.UNDELIVERED, place))[:limit]
    found = yield from all_of([deliveries.get(name) for name in names])
    return Page([each for each in found if each], str(place + limit) if len(names) == limit else None)


def list_stranded(settings: Settings, /, *, limit: int = 50, cursor: str | None = None) -> Plan[Page]:
    """Threads with errands that were given up, the latest first."""
    place = _place(limit, cursor)
    names = (yield from _names(keys.STRANDED, place))[:limit]
    return Page(names, str(place + limit) if len(names) == limit else None)


def _place(limit: int, cursor: str | None) -> int:
    if not 0 < limit <= MOST_PER_PAGE:
        raise InvalidInput(f"limit {limit} must be 1 to {MOST_PER_PAGE}")
    if cursor is not None and not cursor.isdecimal():
        raise InvalidInput(f"cursor {cursor!r} is not one this listing gave out")
    return int(cursor or 0)


def _names(listing: str, place: int) -> Plan[list[str]]:
    command = ("ZRANGE", listing, place, place + MOST_PER_PAGE - 1, "REV")
    return (yield from one(Op(command, lambda reply: [name.decode() for name in reply])))


def stats(settings: Settings, /) -> Plan[Stats]:
    """The fleet in numbers."""
    listings = (keys.RUNS, keys.THREADS, keys.WATCH, keys.DEAD, keys.OWED, keys.UNDELIVERED, keys.STRANDED)
    counted = [Op(("ZCARD", name), int) for name in listings]
    found = yield from all_of([*counted, queue_keys(), fleet.names()])
    runs, threads, watched, dead, owed, undelivered, stranded, queues, names = found
    lengths = yield from all_of([Op(("LLEN", key), int) for key in queues])
    pulses = yield from all_of([fleet.pulse(name) for name in names])
    per_queue = {key.removeprefix("rq:queue:"): length for key, length in zip(queues, lengths, strict=True)}
    return Stats(runs, threads, watched, dead, owed, undelivered, stranded, per_queue, fleet.alive(pulses))

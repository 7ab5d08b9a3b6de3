"""Plans that list: runs and threads page by page, and the fleet in numbers.

A listing is a sorted set. A page ends at an entry, not at a rank: what is listed meanwhile moves no other page.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from postroom.dispatcher.doorbells import queue_keys
from postroom.dispatcher.plans import Plan, all_of, one
from postroom.mailbox import deliveries, fleet, keys, records
from postroom.mailbox.contracts import RunRecord, ThreadRecord
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.lifecycle import RunStatus
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings

MOST_PER_PAGE = 200
# How far one call looks for what fits; the cursor goes on from there.
MOST_PAGES = 20
T = TypeVar("T")


class ThreadStatus(StrEnum):
    """Whether a thread has a run that is open or queued; one whose time has not come leaves it idle."""

    BUSY = "busy"
    IDLE = "idle"


class Place(NamedTuple):
    """An entry of a listing; the latest come first, those of one time in the order that Redis has for them."""

    score: float
    name: bytes


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
    _check_one_of(RunStatus, status)
    wanted = _given(status=status, agent=agent, thread_id=thread, tenant=tenant)

    def fitting(names: list[str]) -> Plan[list[RunRecord | None]]:
        return [run if run and _fits(run, wanted) else None for run in (yield from _known(names))]

    return (yield from _page(keys.DEAD if dead else keys.RUNS, limit, cursor, fitting))


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


def list_threads(
    settings: Settings,
    /,
    *,
    agent: str | None = None,
    status: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Plan[Page]:
    """Threads, the latest active first, those that fit every filter given; `status` is `busy` or `idle`."""
    _check_one_of(ThreadStatus, status)
    wanted = _given(agent=agent)

    def if_it_fits(thread: object, queued: int) -> ThreadRecord | None:
        if not isinstance(thread, ThreadRecord) or not _fits(thread, wanted):
            return None
        return thread if status in (None, _status(thread, queued)) else None

    def fitting(names: list[str]) -> Plan[list[ThreadRecord | None]]:
        # Only the lane knows of a run that is queued while none is open.
        asked = [(records.get_thread(name), Op(("ZCARD", keys.lane(name)), int)) for name in names]
        found = yield [op for both in asked for op in both]
        return [*map(if_it_fits, found[::2], found[1::2])]

    return (yield from _page(keys.THREADS, limit, cursor, fitting))


def _status(thread: ThreadRecord, queued: int) -> ThreadStatus:
    return ThreadStatus.BUSY if thread.open or queued else ThreadStatus.IDLE


def list_undelivered(settings: Settings, /, *, limit: int = 50, cursor: str | None = None) -> Plan[Page]:
    """Deliveries to webhooks that were given up, the latest first."""

    def known(names: list[str]) -> Plan[list[deliveries.Delivery | None]]:
        return (yield from all_of([deliveries.get(name) for name in names]))

    return (yield from _page(keys.UNDELIVERED, limit, cursor, known))


def list_stranded(settings: Settings, /, *, limit: int = 50, cursor: str | None = None) -> Plan[Page]:
    """Threads with errands that were given up, the latest first."""

    def known(names: list[str]) -> Plan[list[str | None]]:
        yield []  # nothing needs to be asked
        return [*names]

    return (yield from _page(keys.STRANDED, limit, cursor, known))


def _given(**filters: str | None) -> dict[str, str]:
    return {name: value for name, value in filters.items() if value is not None}


def _fits(record: object, wanted: dict[str, str]) -> bool:
    return all(getattr(record, name) == value for name, value in wanted.items())


def _check_one_of(allowed: type[StrEnum], status: str | None) -> None:
    if status is not None and status not in [*allowed]:
        raise InvalidInput(f"status {status!r} must be one of {', '.join(allowed)}")


def _page(
    listing: str, limit: int, cursor: str | None, fitting: Callable[[list[str]], Plan[list[T | None]]]
) -> Plan[Page]:
    """The next items of a listing: `fitting` says of some names what they stand for, None for what is not wanted."""
    if not isinstance(limit, int) or not 0 < limit <= MOST_PER_PAGE:
        raise InvalidInput(f"limit {limit!r} must be 1 to {MOST_PER_PAGE}")
    place = None if cursor is None else _place(listing, cursor)
    items: list[T] = []
    for turn in range(MOST_PAGES):
        # Where everything is wanted, as many as are wanted will do.
        places, over = yield from _behind(listing, place, MOST_PER_PAGE if turn else limit)
        found = yield from fitting([each.name.decode() for each in places])
        for place, item in zip(places, found, strict=True):
            if item is not None:
                items.append(item)
            if len(items) == limit:
                return Page(items, _cursor(listing, place))
        if over:
            return Page(items, None)
    return Page(items, _cursor(listing, place))


def _behind(listing: str, place: Place | None, count: int) -> Plan[tuple[list[Place], bool]]:
    """The next entries of a listing, about so many, and whether those are the last ones."""
    start = "+inf" if place is None else f"{place.score:.0f}"
    # The entry that the last page ended at is met once more.
    count += place is not None
    while True:
        command = ("ZRANGE", listing, start, "-inf", "BYSCORE", "REV", "LIMIT", 0, count, "WITHSCORES")
        found = yield from one(Op(command, _places))
        behind = [each for each in found if place is None or each < place]
        over = len(found) < count
        if behind or over:
            return behind, over
        # All of these were listed at the very time of the place, and before it.
        count *= 2


def _places(reply: list[bytes]) -> list[Place]:
    return [Place(float(score), name) for name, score in zip(reply[::2], reply[1::2], strict=True)]


def _cursor(listing: str, place: Place | None) -> str | None:
    return place and urlsafe_b64encode(b"%b %.0f %b" % (listing.encode(), place.score, place.name)).decode()


def _place(listing: str, cursor: str) -> Place:
    """Where a cursor points; a rank, as an earlier build gave out, is none."""
    try:
        of, score, name = urlsafe_b64decode(cursor).split(b" ", 2)
        if of == listing.encode():
            return Place(float(int(score)), name)
    except (ValueError, TypeError, AttributeError, OverflowError):
        pass
    raise InvalidInput(f"cursor {cursor!r} is not one that this listing gave out")


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

"""The watch list: every thread somebody must look at, by when; and the look that puts it right.

Any number of processes may look at once: each look is one script, and looking twice changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from postroom.mailbox import keys
from postroom.mailbox.doorbell import Doorbell, doorbell
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.ops import Op, on_thread, transition
from postroom.mailbox.wire import Command


@dataclass(frozen=True, slots=True)
class Look:
    """What a look found: when to come back (0 = no need), a run given up as dead, a doorbell that rang, errands due."""

    again: int
    dead: str
    doorbell: Doorbell | None
    errands: bool = False


def due(now: int, count: int = 100) -> Op[list[str]]:
    """Threads to look at by now, the longest due first."""
    return Op(_due(now, count), named)


def named(entries: Iterable[bytes]) -> list[str]:
    """Entries of the watch list that can name a thread; anybody may have put others there by hand."""
    return [name for entry in entries if (name := _name(entry))]


def odd(now: int, count: int = 100) -> Op[list[bytes]]:
    """Entries due by now that cannot."""
    return Op(_due(now, count), lambda reply: [entry for entry in reply if not _name(entry)])


def forget(entry: bytes) -> Op[int]:
    """Takes an entry off the list."""
    return Op(("ZREM", keys.WATCH, entry), int)


def _due(now: int, count: int) -> Command:
    return ("ZRANGEBYSCORE", keys.WATCH, "-inf", now, "LIMIT", 0, count)


def _name(entry: bytes) -> str:
    try:
        return keys.check_id(entry.decode(), "thread id")
    except (UnicodeDecodeError, InvalidInput):
        return ""


def reclaim(thread_id: str, max_attempts: int, dead_worker: str = "", now: int | None = None) -> Op[Look]:
    """Looks at a thread; naming a dead worker gives up its lock before the lease ends."""

    def parse(reply: Any) -> Look:
        return Look(int(reply[0]), reply[1].decode(), doorbell(reply[2]), bool(reply[3]))

    return on_thread("reclaim", thread_id, now, (max_attempts, dead_worker), parse)


def clock() -> Op[int]:
    """The server's time in milliseconds: the only clock that counts."""
    return Op(("TIME",), lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)


def tidy(listing: str, before: int, now: int, count: int = 100) -> Op[int]:
    """Drops up to `count` names from a listing whose records have expired; returns how many it met."""
    around = {
        keys.RUNS: ("postroom:run:", ""),
        keys.THREADS: ("postroom:{", "}:thread"),
        keys.DEAD: ("postroom:run:", ""),
        keys.STRANDED: ("postroom:{", "}:undelivered"),
        keys.UNDELIVERED: ("postroom:delivery:", ""),
    }
    return transition("tidy", (listing,), now, (before, count, *around[listing]), int)

"""The doctor: looks at server, clock, queues and workers, and says what to do about what it finds."""

import time
from dataclasses import dataclass
from typing import Any

import redis

from postroom.dispatcher.driving import drive_here
from postroom.dispatcher.listings import stats
from postroom.mailbox import ops, watch
from postroom.mailbox.connect import ANSWER_S, address, dial, problems, read_info, translated
from postroom.mailbox.fleet import Pulse
from postroom.mailbox.settings import Settings

SKEW_MS = 2_000
# The share of its memory that a server may use before there is something to be said about it.
NEARLY_FULL = 0.9


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; what is well for now may still be worth a look."""

    what: str
    well: bool
    words: str
    watch: bool = False

    @property
    def mark(self) -> str:
        """How it stands out among the others."""
        return "BAD" if not self.well else "NB " if self.watch else "ok "


def examine(url: str, settings: Settings) -> list[Finding]:
    """All findings, about a server that any other command would refuse too."""
    info = read_info(url)
    with dial(url, timeout=ANSWER_S) as client, translated(address(url)):
        found = drive_here(stats(settings), client)
        now = ops.run(client, watch.clock())
        return [
            *_fitness(info, address(url)),
            _memory(info),
            _persistence(info),
            _clock(now),
            _queues(found.queues, found.workers),
            _workers(len(found.workers), sum(found.queues.values())),
            _overdue(client, now),
            _dead(found.dead),
            _webhooks(found.owed, found.undelivered),
        ]


# Field of INFO, what it is about, and what to say when it is as it must be.
_FIT = {
    "redis_version": ("version", "{server_name} {version}"),
    "role": ("role", "{role}, takes writes"),
    "maxmemory_policy": ("policy", "maxmemory-policy {maxmemory_policy}, nothing is evicted"),
}


def _fitness(info: dict[str, Any], where: str) -> list[Finding]:
    named = {"server_name": "redis", "version": info.get("valkey_version", info.get("redis_version")), **info}
    found = problems(info, where)
    return [
        Finding(what, found[field] is None, str(found[field] or words.format_map(named)))
        for field, (what, words) in _FIT.items()
    ]


def _memory(info: dict[str, Any]) -> Finding:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most:
        return Finding("memory", True, f"{_mib(used)} used, no maxmemory")
    words = f"{_mib(used)} of {_mib(most)} used ({used * 100 // most} %)"
    if used < NEARLY_FULL * most:
        return Finding("memory", True, words)
    what = "every write is refused" if used >= most else "writes will be refused when it is full"
    return Finding("memory", used < most, f"{words}, {what}; raise maxmemory or shorten the retention", watch=True)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def _persistence(info: dict[str, Any]) -> Finding:
    if info.get("aof_enabled"):
        well = info.get("aof_last_write_status") == "ok"
        return Finding("persistence", well, "append-only file" if well else "the append-only file cannot be written")
    return Finding("persistence", False, "no append-only file: a restart loses runs; set `appendonly yes`")


def _clock(now: int) -> Finding:
    skew = abs(int(time.time() * 1000) - now)
    advice = "" if skew < SKEW_MS else "; run NTP on both machines (leases are safe, delays given as times are not)"
    return Finding("clock", skew < SKEW_MS, f"{skew} ms from the server's{advice}")


def _queues(queues: dict[str, int], workers: list[Pulse]) -> Finding:
    words = ", ".join(f"{name} {count}" for name, count in queues.items()) or "none yet"
    heard = {queue for pulse in workers for queue in pulse.fields.get("queues", b"").decode().split(",")}
    if not (unheard := [name for name, count in queues.items() if count and name not in heard]):
        return Finding("queues", True, words)
    advice = f"start one: postroom worker --queues {','.join(unheard)}"
    return Finding("queues", False, f"{words}; no live worker takes from {', '.join(unheard)}; {advice}")


def _workers(workers: int, waiting: int) -> Finding:
    if workers:
        return Finding("workers", True, f"{workers} alive")
    return Finding(
        "workers", False, f"none alive, {waiting} doorbells wait; start one: postroom worker --app module:app"
    )


def _overdue(client: redis.Redis, now: int) -> Finding:
    late = ops.run(client, watch.due(now - 10_000, 1000))
    if not late:
        return Finding("sweep", True, "the watch list is worked off")
    return Finding("sweep", False, f"{len(late)} threads wait for a look; start one: postroom dispatcher")


def _dead(count: int) -> Finding:
    return Finding("dead", not count, "none" if not count else f"{count} runs were given up; see: postroom dead list")


def _webhooks(owed: int, undelivered: int) -> Finding:
    words = f"{owed} deliveries owed, {undelivered} given up"
    return Finding("webhooks", not undelivered, words + ("; see: postroom webhooks list" if undelivered else ""))

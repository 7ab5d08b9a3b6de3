"""The doctor: looks at server, clock, queues and workers, and says what to do about what it finds."""

import time
from dataclasses import dataclass
from typing import Any

from postroom.dispatcher.client import Dispatcher
from postroom.mailbox import ops, watch

SKEW_MS = 2_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    what: str
    well: bool
    words: str


def examine(client: Dispatcher) -> list[Finding]:
    """All findings; a client that got this far has passed the checks of every connect."""
    info: dict[str, Any] = client.client.info()
    stats = client.stats()
    now = ops.run(client.client, watch.clock())
    waiting = sum(stats.queues.values())
    return [
        Finding(
            "server", True, f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"
        ),
        Finding("policy", True, f"maxmemory-policy {info['maxmemory_policy']}, nothing is evicted"),
        _persistence(info),
        _clock(now),
        _queues(stats.queues, waiting, len(stats.workers)),
        _workers(len(stats.workers), waiting),
        _overdue(client, now),
        _dead(stats.dead),
        _webhooks(stats.owed, stats.undelivered),
    ]


def _persistence(info: dict[str, Any]) -> Finding:
    if info.get("aof_enabled"):
        well = info.get("aof_last_write_status") == "ok"
        return Finding("persistence", well, "append-only file" if well else "the append-only file cannot be written")
    return Finding("persistence", False, "no append-only file: a restart loses runs; set `appendonly yes`")


def _clock(now: int) -> Finding:
    skew = abs(int(time.time() * 1000) - now)
    advice = "" if skew < SKEW_MS else "; run NTP on both machines (leases are safe, delays given as times are not)"
    return Finding("clock", skew < SKEW_MS, f"{skew} ms from the server's{advice}")


def _queues(queues: dict[str, int], waiting: int, workers: int) -> Finding:
    words = ", ".join(f"{name} {count}" for name, count in queues.items()) or "none yet"
    return Finding("queues", not waiting or bool(workers), words)


def _workers(workers: int, waiting: int) -> Finding:
    if workers:
        return Finding("workers", True, f"{workers} alive")
    return Finding(
        "workers", False, f"none alive, {waiting} doorbells wait; start one: postroom worker --app module:app"
    )


def _overdue(client: Dispatcher, now: int) -> Finding:
    late = ops.run(client.client, watch.due(now - 10_000, 1000))
    if not late:
        return Finding("sweep", True, "the watch list is worked off")
    return Finding("sweep", False, f"{len(late)} threads wait for a look; start one: postroom dispatcher")


def _dead(count: int) -> Finding:
    return Finding("dead", not count, "none" if not count else f"{count} runs were given up; see: postroom dead list")


def _webhooks(owed: int, undelivered: int) -> Finding:
    words = f"{owed} deliveries owed, {undelivered} given up"
    return Finding("webhooks", not undelivered, words + ("; see: postroom webhooks list" if undelivered else ""))

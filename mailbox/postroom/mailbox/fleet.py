"""Who is alive: workers announce themselves with what they have consumed last; a silent one disappears by itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from postroom.mailbox.ops import Fields, Op, hash_fields

WORKERS = "postroom:workers"


@dataclass(frozen=True, slots=True)
class Pulse:
    """A worker's sign of life."""

    name: str
    fields: Fields


def worker_key(name: str) -> str:
    """The worker's hash; it expires when the worker stops beating."""
    return f"postroom:worker:{name}"


def beat(name: str, fields: dict[str, str | int], ttl_ms: int) -> list[Op[Any]]:
    """The commands of one heartbeat."""
    flat = [part for pair in fields.items() for part in pair]
    return [
        Op(("HSET", worker_key(name), *flat), int),
        Op(("PEXPIRE", worker_key(name), ttl_ms), int),
        Op(("SADD", WORKERS, name), int),
    ]


def leave(name: str) -> list[Op[Any]]:
    """The commands that take a worker off the list."""
    return [Op(("DEL", worker_key(name)), int), Op(("SREM", WORKERS, name), int)]


def names() -> Op[list[str]]:
    """Every worker on the list, alive or not."""
    return Op(("SMEMBERS", WORKERS), lambda reply: sorted(name.decode() for name in reply))


def pulse(name: str) -> Op[Pulse | None]:
    """A worker's last beat, or None when it has gone silent."""
    return Op(("HGETALL", worker_key(name)), lambda reply: Pulse(name, hash_fields(reply)) if reply else None)


def alive(pulses: Sequence[Pulse | None]) -> list[Pulse]:
    """Those that beat."""
    return [each for each in pulses if each]

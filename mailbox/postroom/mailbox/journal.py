"""A run's event journal: events are numbered 1, 2, 3, so that a reader knows what it has missed.

Events told together are one entry of the stream. Its id is the number of the last of them; each begins with its type.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from postroom.mailbox import codec, keys
from postroom.mailbox.errors import EventsTrimmed
from postroom.mailbox.ops import Op

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """An event with its number and the server's time."""

    number: int
    at: int
    event: Plain


def fields(event: Plain, limit: int = codec.MAX_BYTES, step: int = 0) -> list[Any]:
    """The stream fields of an event given as plain data: words and the step stay plain, the rest goes into the body."""
    flat: list[Any] = ["type", event["type"], "step", event.get("step", step)]
    if len(event) == 1:
        return flat
    rest: Plain | None = None
    for name, value in event.items():
        if value is None or name in _OWN:
            continue
        # An empty text would look like a field that a script left unset.
        if isinstance(value, str) and value and name not in _RESERVED and len(flat) < _MOST_PLAIN:
            flat += (name, codec.fitting(value, limit))
        else:
            rest = rest or {}
            rest[name] = value
    if rest:
        flat += ("body", codec.encode(rest, limit))
    return flat


_OWN = frozenset({"type", "step"})
_RESERVED = frozenset({"at", "body"})
_MOST_PLAIN = 64


def entries(raw: Iterable[Sequence[Any]]) -> list[Entry]:
    """The events of some entries of the stream."""
    return [event for each in raw for event in _events(each)]


def told_last(raw: Sequence[Sequence[Any]]) -> Entry | None:
    """The event that an entry is named after, if there is one."""
    found = entries(raw)
    return found[-1] if found else None


def _events(raw: Sequence[Any]) -> list[Entry]:
    last, flat = int(raw[0].partition(b"-")[0]), raw[1]
    at = 0
    found: list[dict[str, bytes]] = []
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        if name == b"type":
            found.append({})
        if found:
            found[-1][name.decode()] = value
        elif name == b"at":
            at = int(value)
    first = last - len(found) + 1
    return [Entry(first + place, at, _event(fields)) for place, fields in enumerate(found)]


def _event(found: dict[str, bytes]) -> Plain:
    step = int(found.pop("step", 0))
    body = found.pop("body", None)
    event: Plain = {name: value.decode() for name, value in found.items() if value}
    if step:
        event["step"] = step
    return event | (codec.decode(body) if body else {})


def read(thread_id: str, run_id: str, after: int = 0, count: int = 200) -> Op[list[Entry]]:
    """The events of up to `count` entries behind a number; if some were trimmed, an error says so, not a silent gap."""
    command = ("XRANGE", keys.events(thread_id, run_id), f"({after}-0", "+", "COUNT", count)
    return Op(command, lambda reply: _without_gap(run_id, after, reply))


def follow(thread_id: str, run_id: str, after: int, wait_ms: int, count: int = 200) -> Op[list[Entry]]:
    """Like `read`, but waits for the next event; it blocks its connection, so give it one of its own."""
    command = ("XREAD", "BLOCK", wait_ms, "COUNT", count, "STREAMS", keys.events(thread_id, run_id), f"{after}-0")
    return Op(command, lambda reply: _without_gap(run_id, after, reply[0][1] if reply else []))


def _without_gap(run_id: str, after: int, raw: Sequence[Any]) -> list[Entry]:
    # The first entry may hold events that the reader has seen.
    found = [each for each in entries(raw) if each.number > after]
    if found and found[0].number > after + 1:
        first = found[0].number
        raise EventsTrimmed(f"events {after + 1} to {first - 1} of run {run_id} are trimmed; the first left is {first}")
    return found

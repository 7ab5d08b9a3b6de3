"""A thread's message log: append-only, written by commits, read as the view that models and people get to see.

An entry of plain words is plain text in Redis; whatever else a message carries travels in `body`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from postroom.mailbox import codec, keys
from postroom.mailbox.ops import Op

Plain = dict[str, Any]
RETRACTION = "retraction"


@dataclass(frozen=True, slots=True)
class Entry:
    """A message with its place in the log."""

    seq: int
    at: int
    run: str
    step: int
    message: Plain
    retracts: str = ""
    # The interval a summary stands for. A field of its own: metadata is the user's.
    covers: tuple[int, int] | None = None


def fields(message: Plain, step: int, limit: int = codec.MAX_BYTES, covers: tuple[int, int] | None = None) -> list[Any]:
    """The stream fields of a message given as plain data (`Message.as_dict()`)."""
    flat: list[Any] = ["role", message["role"], "step", step]
    rest: Plain | None = None
    for name, value in message.items():
        if not value or name == "role":
            continue
        if name == "content" and len(value) == 1 and value[0]["type"] == "text":
            flat += ("text", codec.fitting(value[0]["text"], limit))
        elif name in _PLAIN:
            if value != "all":
                flat += (_PLAIN[name], value)
        else:
            rest = rest or {}
            rest[name] = value
    if covers:
        flat += ("covers", f"{covers[0]} {covers[1]}")
    if rest:
        flat += ("body", codec.encode(rest, limit))
    return flat


# Message fields that have a stream field of their own, so that redis-cli shows them.
_PLAIN = {"id": "id", "tool_call_id": "call", "visibility": "visibility"}


def entry(raw: Sequence[Any]) -> Entry:
    """An entry from XRANGE's reply."""
    seq, flat = int(raw[0].partition(b"-")[0]), raw[1]
    found = {flat[i]: flat[i + 1] for i in range(0, len(flat), 2)}
    message: Plain = codec.decode(found[b"body"]) if b"body" in found else {}
    message["role"] = found[b"role"].decode()
    if b"text" in found:
        message["content"] = [{"type": "text", "text": found[b"text"].decode()}]
    for name, field in _PLAIN.items():
        if field.encode() in found:
            message[name] = found[field.encode()].decode()
    start, _, end = found.get(b"covers", b"").partition(b" ")
    return Entry(
        seq,
        int(found.get(b"at", 0)),
        found.get(b"run", b"").decode(),
        int(found.get(b"step") or 0),
        message,
        found.get(b"retracts", b"").decode(),
        (int(start), int(end)) if end else None,
    )


def view(entries: Iterable[Entry]) -> list[Entry]:
    """What is left to read: summaries in place of what they cover, nothing retracted, one result per answered call."""
    everything = list(entries)
    if not everything:
        return []
    retracted = {each.retracts for each in everything if each.retracts}
    kept = [each for each in everything if each.message["role"] != RETRACTION and each.run not in retracted]
    return _paired(_folded(kept))


def folded(entries: Iterable[Entry], summary: Plain, covers: tuple[int, int]) -> tuple[Entry, ...]:
    """A view with one more summary in it."""
    return tuple(_folded([*entries, Entry(covers[1] + 1, 0, "", 0, summary, covers=covers)]))


def _folded(entries: list[Entry]) -> list[Entry]:
    summaries = [each for each in entries if each.covers]
    widest = [
        each for each in summaries if not any(_contains(other, each) for other in summaries if other.seq != each.seq)
    ]
    spans = [(span, each) for each in widest if (span := each.covers)]
    plain = [each for each in entries if not each.covers and not any(lo <= each.seq <= hi for (lo, hi), _ in spans)]
    placed = [(each.seq, each) for each in plain] + [(lo, each) for (lo, _), each in spans]
    return [each for _, each in sorted(placed, key=lambda pair: pair[0])]


def _contains(outer: Entry, inner: Entry) -> bool:
    (lo, hi), (start, end) = outer.covers or (0, 0), inner.covers or (0, 0)
    # Of two summaries of the same span the later one counts.
    return lo <= start and end <= hi and ((lo, hi) != (start, end) or outer.seq > inner.seq)


def _paired(entries: list[Entry]) -> list[Entry]:
    """A result belongs to the last call of its id before it: providers give the same id again in later steps."""
    asked: dict[str, int] = {}
    results: dict[tuple[int, str], Entry] = {}
    for each in entries:
        for call in each.message.get("tool_calls", ()):
            asked[call["id"]] = each.seq
        if each.message["role"] == "tool" and each.message["tool_call_id"] in asked:
            call_id = each.message["tool_call_id"]
            results[asked[call_id], call_id] = each
    # The last result of a call counts; an internal one takes the call back.
    shown = {at: each for at, each in results.items() if each.message.get("visibility") != "internal"}
    kept_results = {each.seq for each in shown.values()}
    return [kept for each in entries if (kept := _keep(each, shown, kept_results))]


def _keep(each: Entry, shown: dict[tuple[int, str], Entry], kept_results: set[int]) -> Entry | None:
    message = each.message
    if message["role"] == "tool":
        return each if each.seq in kept_results else None
    calls = message.get("tool_calls")
    if not calls:
        return each
    left = [call for call in calls if (each.seq, call["id"]) in shown]
    if len(left) == len(calls):
        return each
    if not left and not message.get("content"):
        return None
    return replace(each, message={**message, "tool_calls": left})


def read(thread_id: str, after: int = 0, count: int = 1000) -> Op[list[Entry]]:
    """Up to `count` entries behind a sequence number, as they were written."""
    command = ("XRANGE", keys.log(thread_id), f"({after}-0", "+", "COUNT", count)
    return Op(command, lambda reply: [entry(raw) for raw in reply])

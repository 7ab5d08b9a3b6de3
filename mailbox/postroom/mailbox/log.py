"""A thread's message log: append-only, written by commits, read as the view that models and people get to see.

An entry of plain words is plain text in Redis; whatever else a message carries travels in `body`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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

    @property
    def covers(self) -> tuple[int, int] | None:
        """The interval a compaction summary stands for."""
        mark = self.message.get("metadata", {}).get("compaction")
        return (mark["from"], mark["to"]) if mark else None


def fields(message: Plain, step: int, limit: int = codec.MAX_BYTES) -> list[Any]:
    """The stream fields of a message given as plain data (`Message.as_dict()`)."""
    flat: list[Any] = ["role", message["role"], "step", step]
    rest = {name: value for name, value in message.items() if value and name not in _PLAIN}
    content = message.get("content") or []
    if len(content) == 1 and content[0]["type"] == "text":
        flat += ["text", content[0]["text"]]
    elif content:
        rest["content"] = content
    for name, field in _PLAIN.items():
        if field and message.get(name) not in (None, "all"):
            flat += [field, message[name]]
    if rest:
        flat += ["body", codec.encode(rest, limit)]
    return flat


# Message fields that have a stream field of their own, so that redis-cli shows them.
_PLAIN = {"role": "", "content": "", "id": "id", "tool_call_id": "call", "visibility": "visibility"}


def entry(raw: Sequence[Any]) -> Entry:
    """An entry from XRANGE's reply."""
    seq, flat = int(raw[0].partition(b"-")[0]), raw[1]
    found = {flat[i]: flat[i + 1] for i in range(0, len(flat), 2)}
    message: Plain = codec.decode(found[b"body"]) if b"body" in found else {}
    message["role"] = found[b"role"].decode()
    if b"text" in found:
        message["content"] = [{"type": "text", "text": found[b"text"].decode()}]
    for name, field in _PLAIN.items():
        if field and field.encode() in found:
            message[name] = found[field.encode()].decode()
    return Entry(
        seq,
        int(found.get(b"at", 0)),
        found.get(b"run", b"").decode(),
        int(found.get(b"step") or 0),
        message,
        found.get(b"retracts", b"").decode(),
    )


def view(entries: Iterable[Entry]) -> list[Entry]:
    """What is left to read: summaries in place of what they cover, nothing retracted, one result per answered call."""
    everything = list(entries)
    retracted = {each.retracts for each in everything if each.retracts}
    kept = [each for each in everything if each.message["role"] != RETRACTION and each.run not in retracted]
    return _paired(_folded(kept))


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
    results: dict[str, Entry] = {}
    for each in entries:
        if each.message["role"] == "tool":
            results[each.message["tool_call_id"]] = each
    # The last result of a call counts; an internal one takes the call back.
    answered = {call for call, each in results.items() if each.message.get("visibility") != "internal"}
    return [kept for each in entries if (kept := _keep(each, results, answered))]


def _keep(each: Entry, results: dict[str, Entry], answered: set[str]) -> Entry | None:
    message = each.message
    if message["role"] == "tool":
        call = message["tool_call_id"]
        return each if call in answered and results[call] is each else None
    calls = message.get("tool_calls")
    if not calls:
        return each
    left = [call for call in calls if call["id"] in answered]
    if len(left) == len(calls):
        return each
    if not left and not message.get("content"):
        return None
    return Entry(each.seq, each.at, each.run, each.step, {**message, "tool_calls": left}, each.retracts)


def read(thread_id: str, after: int = 0, count: int = 1000) -> Op[list[Entry]]:
    """Up to `count` entries behind a sequence number, as they were written."""
    command = ("XRANGE", keys.log(thread_id), f"({after}-0", "+", "COUNT", count)
    return Op(command, lambda reply: [entry(raw) for raw in reply])

"""Forks: a thread that begins with what was said on another one up to some point, and goes its own way from there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from postroom.mailbox import log
from postroom.mailbox.log import Entry
from postroom.mailbox.ops import Op, counted, counted_lists, on_thread, pairs
from postroom.mailbox.settings import Settings


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fork comes from: the thread and the last sequence number it took over, and who serves it."""

    thread_id: str
    seq: int
    agent: str
    queue: str


def readable(entries: Sequence[Entry], until: int) -> tuple[int, list[Entry]]:
    """What was to be read up to there, and where that ends: never between a call and its result."""
    present = [each for each in entries if each.seq <= until]
    retracted = {each.retracts for each in present if each.retracts}
    waiting: set[str] = set()
    whole = 0
    for each in present:
        if each.run in retracted and not each.retracts:
            continue
        waiting |= {call["id"] for call in each.message.get("tool_calls", ())}
        waiting.discard(each.message.get("tool_call_id", ""))
        if not waiting:
            whole = each.seq
    return whole, log.view(each for each in present if each.seq <= whole)


def fork(
    thread_id: str,
    origin: Origin,
    entries: Sequence[Entry],
    state: Mapping[str, bytes],
    settings: Settings,
    now: int | None = None,
) -> Op[str]:
    """Begins a thread: `forked`, or `again` when this very fork is there."""
    args = [
        origin.thread_id,
        origin.seq,
        origin.agent,
        origin.queue,
        settings.run_retention_ms,
        settings.thread_retention_ms,
        settings.dedupe_ms,
        *counted(pairs(dict(state))),
        *counted_lists([_written(each, seq, settings.max_body_bytes) for seq, each in enumerate(entries, 1)]),
    ]
    return on_thread("fork", thread_id, now, args, lambda reply: str(reply.decode()))


def _written(entry: Entry, seq: int, limit: int) -> list[object]:
    """An entry as the fork has it. Its run is the other thread's, so it is named as where it comes from and no more."""
    # What a summary stood for was left behind: in the fork it stands for its own place alone.
    covers = (seq, seq) if entry.covers else None
    return [entry.at, "origin", entry.run, *log.fields(entry.message, entry.step, limit, covers)]

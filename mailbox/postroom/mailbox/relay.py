"""Child events: what a parent's followers see of its children. Told beside the child's own commits, at most once."""

from collections.abc import Sequence
from typing import Any

from postroom.mailbox import codec, journal
from postroom.mailbox.keys import check_token
from postroom.mailbox.ops import Op, counted_lists, on_thread

Plain = dict[str, Any]

# What is worth seeing of a child; the rest is in its own journal.
SHOWN = frozenset(
    {
        "run_start",
        "text_delta",
        "tool_call_start",
        "tool_call_ready",
        "tool_call_stream_delta",
        "tool_call_done",
        "tool_call_resumed",
    }
)


def child_event(run_id: str, thread_id: str, agent: str, call_id: str | None, event: Plain) -> Plain:
    """An event of a child, as its parent's journal has it."""
    about = {"type": "child_event", "child_run_id": run_id, "child_thread_id": thread_id, "agent": agent}
    return {**about, **({"call_id": call_id} if call_id else {}), "event": event}


def relay(
    thread_id: str,
    run_id: str,
    events: Sequence[Plain],
    max_events: int = 10_000,
    limit: int = codec.MAX_BYTES,
    now: int | None = None,
) -> Op[int]:
    """Tells events of a child in its parent's journal; says how many, 0 when the parent has ended."""
    check_token(run_id, "run id")
    rows = [journal.fields(event, limit) for event in events]
    return on_thread("relay", thread_id, now, [run_id, max_events, *counted_lists(rows)], int)

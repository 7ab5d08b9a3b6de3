"""What a person sees: tables, and a run's events as they happen. Rich is used where it is installed."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from postroom.mailbox.journal import Entry

_QUIET = frozenset({"step_start", "step_end", "state_snapshot"})


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Rows under their headings."""
    if not rows:
        return
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(column), *(len(row[i]) for row in texts)) for i, column in enumerate(columns)]
    for line in ([column.upper() for column in columns], *texts):
        sys.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n")
    sys.stdout.flush()


def show_events(entries: Iterable[Entry]) -> int:
    """Words as they come, everything else as a line; the exit code tells how the run ended."""
    open_line = False
    for entry in entries:
        event = entry.event
        if event["type"] == "text_delta":
            sys.stdout.write(event["delta"])
            open_line = True
        elif event["type"] not in _QUIET:
            sys.stdout.write(("\n" if open_line else "") + f"· {_words(event)}\n")
            open_line = False
        sys.stdout.flush()
        if event["type"] == "run_finish":
            return 0 if event["termination"] in {"natural_end", "behavior_requested"} else 1
    return 0


def _words(event: dict[str, Any]) -> str:
    rest = " ".join(f"{name}={value}" for name, value in event.items() if name not in {"type", "step"} and value)
    return f"{event['type']} {rest}".rstrip()

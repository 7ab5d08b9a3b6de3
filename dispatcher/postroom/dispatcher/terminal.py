"""What a person sees: tables, and a run's events as they happen; in colour and with a live status on a terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from postroom.mailbox.journal import Entry

_QUIET = frozenset({"step_end", "state_snapshot"})
_WELL = frozenset({"natural_end", "behavior_requested"})


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
    with _status() as status:
        for entry in entries:
            event = entry.event
            if event["type"] == "step_start":
                status(f"step {event.get('step', '')}")
            elif event["type"] == "text_delta":
                sys.stdout.write(event["delta"])
                open_line = True
            elif event["type"] not in _QUIET:
                sys.stdout.write(("\n" if open_line else "") + f"· {_words(event)}\n")
                open_line = False
            sys.stdout.flush()
            if event["type"] == "run_finish":
                return 0 if event["termination"] in _WELL else 1
    return 0


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """A live line under the output, where there is a terminal to show it on."""
    if not sys.stderr.isatty():
        yield lambda words: None
        return
    from rich.console import Console

    with Console(stderr=True).status("waiting for a worker", spinner="dots") as line:
        yield line.update


def _words(event: dict[str, Any]) -> str:
    rest = " ".join(f"{name}={value}" for name, value in event.items() if name not in {"type", "step"} and value)
    return f"{event['type']} {rest}".rstrip()

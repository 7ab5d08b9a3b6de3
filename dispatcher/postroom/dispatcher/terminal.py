"""What a person sees: tables, and a run as it happens; live on a terminal, plain lines everywhere else."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from postroom.dispatcher.progress import QUIET, WELL, Progress, words_of
from postroom.mailbox.journal import Entry
from postroom.mailbox.lifecycle import TERMINAL


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
    """A run as it happens, live on a terminal, else line by line; the exit code tells how it ended."""
    return _live(entries) if sys.stdout.isatty() else _plain(entries)


def _plain(entries: Iterable[Entry]) -> int:
    """Words as they come, everything else as a line."""
    open_line = False
    for entry in entries:
        event = entry.event
        if event["type"] == "text_delta":
            sys.stdout.write(event["delta"])
            open_line = True
        elif event["type"] not in QUIET:
            sys.stdout.write(("\n" if open_line else "") + f"· {words_of(event)}\n")
            open_line = False
        sys.stdout.flush()
        if event["type"] == TERMINAL:
            return _code(event)
    return 0


def _live(entries: Iterable[Entry]) -> int:
    """What is settled scrolls by; the words being said, the calls under way and the step stay in view below it."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    progress = Progress()
    clock = Spinner("dots")

    def picture() -> Group:
        clock.update(text=Text(progress.doing, style="dim"))
        calls = [Text(f"  → {_safe(name)}", style="cyan") for name in progress.calls.values()]
        return Group(*([Text(_safe(progress.words))] if progress.words else []), *calls, clock)

    console = Console(highlight=False)
    with Live(console=console, get_renderable=picture, transient=True, refresh_per_second=8) as live:
        for entry in entries:
            for line in progress.feed(entry.event):
                console.print(Text(_safe(line), style="dim" if line.startswith("· ") else ""))
            live.refresh()
            if entry.event["type"] == TERMINAL:
                return _code(entry.event)
    return 0


def _code(event: dict[str, Any]) -> int:
    return 0 if event["termination"] in WELL else 1


def _safe(words: str) -> str:
    """Words without what a terminal would obey: they come from models and tools, and may be anybody's."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in words)

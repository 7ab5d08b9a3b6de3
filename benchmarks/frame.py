"""What the benchmarks against others share: their environments, figures that take turns, tables of ratios, bars."""

import statistics
import subprocess
import sys
import venv
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

# Measure, its heading, how to write it, and whether less is better.
Column = tuple[str, str, str, bool]


class Figures:
    """All that was measured: contender and measure to a value per round."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, name: str, **values: float) -> None:
        for measure, value in values.items():
            self._found[name, measure].append(value)

    def all(self, name: str, measure: str) -> list[float]:
        return self._found.get((name, measure), [])

    def get(self, name: str, measure: str) -> float | None:
        values = self.all(name, measure)
        return statistics.median(values) if values else None

    def best(self, names: Sequence[str], measure: str, *, least: bool = False) -> tuple[float, str] | None:
        known = [(value, name) for name in names if (value := self.get(name, measure)) is not None]
        return (min(known) if least else max(known)) if known else None


def install(name: str, packages: Sequence[str], cache: Path) -> Path:
    """The interpreter of an environment of its own, made when its packages are not what they should be."""
    home, wanted = cache / name, "\n".join(packages)
    python, mark = home / "bin" / "python", home / "installed"
    if not mark.exists() or mark.read_text() != wanted:
        print(f"installing {name}", file=sys.stderr)
        venv.create(home, clear=True, symlinks=True, with_pip=True)
        quiet = ["--quiet", "--disable-pip-version-check"]
        subprocess.run([python, "-m", "pip", "install", *quiet, *packages], check=True)
        mark.write_text(wanted)
    return python


def table(columns: Sequence[Column], names: Sequence[str], value: Callable[[str, Column], str]) -> None:
    """Names down, columns across."""
    rows = [["", *(column[1] for column in columns)]]
    rows += [[name, *(value(name, column) for column in columns)] for name in names]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for first, *rest in rows:
        print(
            "  ".join(
                [first.ljust(widths[0]), *(word.rjust(width) for word, width in zip(rest, widths[1:], strict=True))]
            )
        )


def cell(value: float | None, pattern: str) -> str:
    return "-" if value is None else pattern.format(value)


def ratio(value: float | None, ours: float | None) -> float | None:
    return None if value is None or not ours else value / ours


def bar(words: str, found: float | None, limit: float, of: str, *, most: bool = False) -> bool:
    """Prints whether a limit is held; what was not measured is not held against anybody."""
    if found is None:
        print(f"  -     {words}: not measured")
        return True
    held = found <= limit if most else found >= limit
    print(f"  {'pass' if held else 'FAIL'}  {words}: {found:.2f} ({of}), {'at most' if most else 'at least'} {limit:g}")
    return held

r"""The language in which rules name tool calls.

    Bash                            the tool, whatever its arguments; so do Bash(*) and Bash()
    mcp__github__*                  tools by a glob
    /mcp__(github|gitlab)__.*/      tools by a regular expression found in their names
    Bash(npm *)                     the only argument, or all of them as JSON, by a glob
    Edit(path ~ "src/*", n != "1")  arguments by path, all of which must hold
    Query(queries[*].sql =~ "DROP") any element; `*` is any key, [0] one element

Operators are `=` exactly, `~` glob, `=~` regular expression found somewhere, each with a `!` in front for its opposite.
What is not there satisfies none of them. A regular expression that does not compile is found nowhere.
"""

import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

from postroom.worker.core.globs import glob_matches


class NameKind(IntEnum):
    """How a pattern names its tools, the most precise last."""

    REGEX = 1
    GLOB = 2
    EXACT = 3


class Wild(Enum):
    """A step of a path that leads to several values."""

    KEY = "*"
    ITEM = "[*]"


Segment = str | int | Wild


class Specificity(NamedTuple):
    """How precisely a pattern says what it means; the greater, the more precise."""

    name: int
    has_arguments: bool
    fields: int
    precision: int


@lru_cache(1024)
def regex(expression: str) -> re.Pattern[str] | None:
    """The regular expression, or None when it does not compile."""
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            return re.compile(expression)
    except (re.error, OverflowError, RecursionError):
        return None


def regex_found(expression: str, text: str) -> bool:
    """Whether the regular expression is found in the text; one that does not compile is found nowhere."""
    known = regex(expression)
    return known is not None and known.search(text) is not None


_HOLDS: dict[str, Callable[[str, str], bool]] = {
    "=": lambda wanted, text: wanted == text,
    "~": glob_matches,
    "=~": regex_found,
}
_PRECISION = {"=": 3, "~": 2, "=~": 1}


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold of an argument."""

    path: tuple[Segment, ...]
    operator: str
    value: str

    def holds(self, arguments: Any) -> bool:
        """Whether any value the path leads to satisfies it."""
        return any(compared(self.operator, self.value, as_text(found)) for found in found_at(arguments, self.path))

    @property
    def precision(self) -> int:
        """How precise the operator is."""
        return _PRECISION[self.operator.removeprefix("!")]

    def __str__(self) -> str:
        quoted = self.value.replace("\\", "\\\\").replace('"', '\\"')
        return f'{_rendered(self.path)} {self.operator} "{quoted}"'


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern; `primary` is the glob over the only argument."""

    name: str
    kind: NameKind = NameKind.EXACT
    primary: str | None = None
    conditions: tuple[Condition, ...] = ()

    def names(self, tool: str) -> bool:
        """Whether it is about this tool at all."""
        return _NAMED[self.kind](self.name, tool)

    def matches(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether it is about this call."""
        if not self.names(tool):
            return False
        if self.primary is not None and not glob_matches(self.primary, _primary(arguments)):
            return False
        return all(condition.holds(arguments) for condition in self.conditions)

    @property
    def unconditional(self) -> bool:
        """Whether it takes any arguments."""
        return self.primary is None and not self.conditions

    @property
    def specificity(self) -> Specificity:
        """How precise it is, to tell which of several that match says most."""
        if self.primary is not None:
            return Specificity(self.kind, True, 1, _PRECISION["~"])
        fields = self.conditions
        return Specificity(self.kind, bool(fields), len(fields), sum(each.precision for each in fields))

    @property
    def broken(self) -> tuple[str, ...]:
        """Regular expressions in it that do not compile."""
        expressions = [each.value for each in self.conditions if each.operator.endswith("=~")]
        return tuple(each for each in expressions if regex(each) is None)

    def __str__(self) -> str:
        name = f"/{self.name}/" if self.kind is NameKind.REGEX else self.name
        inside = self.primary if self.primary is not None else ", ".join(map(str, self.conditions))
        return f"{name}({inside})" if inside else name


_NAMED: dict[NameKind, Callable[[str, str], bool]] = {
    NameKind.EXACT: _HOLDS["="],
    NameKind.GLOB: _HOLDS["~"],
    NameKind.REGEX: _HOLDS["=~"],
}


def compared(operator: str, value: str, text: str) -> bool:
    """Whether the text stands to the value as the operator says."""
    negated = operator.startswith("!")
    return _HOLDS[operator.removeprefix("!")](value, text) is not negated


def found_at(value: Any, path: tuple[Segment, ...]) -> list[Any]:
    """The values a path leads to; none when there is no such place."""
    found = [value]
    for segment in path:
        found = [further for each in found for further in _step(each, segment)]
    return found


def _step(value: Any, segment: Segment) -> list[Any]:
    match segment, value:
        case Wild.KEY, dict():
            return list(value.values())
        case Wild.ITEM, list():
            return value
        case str(), dict() if segment in value:
            return [value[segment]]
        case int(), list() if segment < len(value):
            return [value[segment]]
        case _:
            return []


def as_text(value: Any) -> str:
    """A value as patterns see it: words as they are, nothing as no words, all else as JSON with its keys in order."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _primary(arguments: Mapping[str, Any]) -> str:
    return as_text(next(iter(arguments.values())) if len(arguments) == 1 else dict(arguments))


def _rendered(path: tuple[Segment, ...]) -> str:
    words = ""
    for segment in path:
        match segment:
            case int():
                words += f"[{segment}]"
            case Wild.ITEM:
                words += segment.value
            case _:
                words += f"{'.' if words else ''}{segment.value if isinstance(segment, Wild) else segment}"
    return words

"""Reading patterns: from text to meaning, with errors that point at the place."""

import re
from collections.abc import Iterator
from functools import lru_cache

from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.globs import compiled
from postroom.worker.core.patterns import Condition, NameKind, Pattern, Segment, Wild, regex


class PatternError(InvalidInput):
    """A pattern that is not of the language; the message says where."""

    code = "pattern_invalid"


_SPACE = re.compile(r"\s*")
_OPEN = re.compile(r"\s*\(\s*")
_CLOSE = re.compile(r"\s*\)")
_DOT = re.compile(r"\.")
_COMMA = re.compile(r"\s*,\s*")
_SLASHED = re.compile(r"/((?:\\.|[^/\\])*)(/?)", re.DOTALL)
_WORD = re.compile(r"[\w.:@/$*?\[\]!^\\-]+")
_KEY = re.compile(r"[\w$-]+|\*")
_ITEM = re.compile(r"\[\s*(\d{1,9}|\*)\s*\]")
_OPERATOR = re.compile(r"\s*(!=~|!=|!~|=~|~|=)\s*")
_VALUE = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)
_ANYTHING = re.compile(r"\*?\s*(?=\))")
_A_CONDITION = re.compile(r"(?:[\w$-]+|\*)(?:\[[^\]]*\]|\.(?:[\w$-]+|\*))*\s*(?:!=|!~|=|~)")


class _Reader:
    """A place in a text, moving on as pieces are recognised."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def take(self, piece: re.Pattern[str]) -> re.Match[str] | None:
        found = piece.match(self.text, self.place)
        if found:
            self.place = found.end()
        return found

    def need(self, piece: re.Pattern[str], wanted: str) -> re.Match[str]:
        found = self.take(piece)
        if found is None:
            raise self.refused(f"expected {wanted}")
        return found

    def refused(self, reason: str, place: int | None = None) -> PatternError:
        where = self.place if place is None else place
        seen = repr(self.text[where : where + 12]) if where < len(self.text) else "the end"
        return PatternError(f"pattern {self.text!r}, character {where + 1} ({seen}): {reason}")


@lru_cache(4096)
def parse(text: str) -> Pattern:
    """The pattern a text stands for, or an error that points at the place."""
    reader = _Reader(text.strip())
    name, kind = _name(reader)
    primary, conditions = _arguments(reader) if reader.take(_OPEN) else (None, ())
    reader.take(_SPACE)
    if reader.place < len(reader.text):
        raise reader.refused("expected nothing more")
    return Pattern(name, kind, primary, conditions)


@lru_cache(4096)
def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Conditions as they stand between a pattern's brackets, for what is not a call."""
    reader = _Reader(text.strip())
    conditions = tuple(_conditions(reader))
    if reader.place < len(reader.text):
        raise reader.refused("expected ',' or nothing more")
    return conditions


def _name(reader: _Reader) -> tuple[str, NameKind]:
    if slashed := reader.take(_SLASHED):
        expression, closed = slashed.groups()
        if not closed:
            raise reader.refused("expected '/' after the regular expression")
        if not expression or regex(expression) is None:
            raise reader.refused("expected a regular expression that compiles", slashed.start(1))
        return expression, NameKind.REGEX
    word = reader.need(_WORD, "the name of a tool")[0]
    return word, NameKind.GLOB if any(special in word for special in "*?[") else NameKind.EXACT


def _arguments(reader: _Reader) -> tuple[str | None, tuple[Condition, ...]]:
    if reader.take(_ANYTHING):
        reader.need(_CLOSE, "')'")
        return None, ()
    if not _A_CONDITION.match(reader.text, reader.place):
        return _balanced(reader), ()
    conditions = tuple(_conditions(reader))
    reader.need(_CLOSE, "',' or ')'")
    return None, conditions


def _balanced(reader: _Reader) -> str:
    start, depth = reader.place, 1
    for found in re.finditer(r"\\.|[()]", reader.text[start:]):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            reader.place = start + found.end()
            glob = reader.text[start : start + found.start()].strip()
            compiled(glob)
            return glob
    raise reader.refused("expected ')' at the end", len(reader.text))


def _conditions(reader: _Reader) -> Iterator[Condition]:
    while True:
        path = tuple(_path(reader))
        operator = reader.need(_OPERATOR, "one of = ~ =~ != !~ !=~")[1]
        quoted = reader.need(_VALUE, 'a value in "quotes"')[1]
        value = re.sub(r'\\(["\\])', r"\1", quoted)
        if operator.endswith("~") and not operator.endswith("=~"):
            compiled(value)
        yield Condition(path, operator, value)
        if not reader.take(_COMMA):
            return


def _path(reader: _Reader) -> Iterator[Segment]:
    while True:
        key = reader.need(_KEY, "the name of an argument, or *")[0]
        yield Wild.KEY if key == "*" else key
        while item := reader.take(_ITEM):
            yield Wild.ITEM if item[1] == "*" else int(item[1])
        if not reader.take(_DOT):
            return

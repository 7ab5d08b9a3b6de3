"""Globs over any text: `*` is anything, slashes included, `?` one character, `[a-z]` and `[!a-z]` one of some.

`**/` at the beginning of a path's part is any number of folders, none included; `\\` takes the meaning away from what
follows. Matching takes time in proportion to the text, whatever the text: it may come from a model.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from postroom.mailbox.errors import InvalidInput

MAX_FOLDERS = 4
_STAR, _FOLDERS = object(), object()
_TOKEN = re.compile(
    r"(?P<folders>(?<![^/])\*\*+/)|(?P<star>\*+)|(?P<any>\?)|\[(?P<negated>[!^]?)(?P<some>[^\]]+)\]|\\(?P<escaped>.)|(?P<plain>.)",
    re.DOTALL,
)


def glob_matches(pattern: str, text: str) -> bool:
    """Whether the whole text is what the glob describes."""
    return compiled(pattern).fullmatch(text) is not None


@lru_cache(4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """The glob as a regular expression that never looks back."""
    tokens = list(_tokens(pattern))
    if tokens.count(_FOLDERS) > MAX_FOLDERS:
        raise InvalidInput(f"glob {pattern!r} has more than {MAX_FOLDERS} times '**/'; use '*', which crosses '/'")
    ways = product(*([[_STAR, "/"], []] if token is _FOLDERS else [[token]] for token in tokens))
    return re.compile("|".join(_expression([token for part in way for token in part]) for way in ways), re.DOTALL)


def _tokens(pattern: str) -> Iterator[object]:
    for found in _TOKEN.finditer(pattern):
        match found.lastgroup:
            case "folders":
                yield _FOLDERS
            case "star":
                yield _STAR
            case "any":
                yield "."
            case "some":
                yield _one_of(found["some"], found["negated"] != "")
            case kind:
                yield re.escape(found[kind or "plain"])


def _one_of(some: str, negated: bool) -> str:
    members = [
        f"{re.escape(low)}-{re.escape(high)}" if high else re.escape(low)
        for low, high in re.findall(r"(.)(?:-(.))?", some, re.DOTALL)
        if not high or low <= high
    ]
    if not members:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(members)}]"


def _expression(tokens: list[object]) -> str:
    # Between stars stand pieces of fixed length. The first place where one fits is as good as any later one, so a
    # piece once found stays found: that is what the atomic group says, and what keeps hostile text cheap.
    pieces = [""]
    for token in tokens:
        if token is _STAR:
            pieces.append("")
        else:
            pieces[-1] += str(token)
    first, *middle = pieces
    if not middle:
        return first
    *middle, last = middle
    return first + "".join(f"(?>.*?{piece})" for piece in middle if piece) + ".*" + last

r"""Which tools, agents or plugins of a catalogue are meant: names in which only `*` is special and `\` escapes it."""

import re
from collections.abc import Iterable
from functools import lru_cache

from postroom.worker.core.globs import glob_matches

EVERYTHING = ("*",)
_SPECIAL_ELSEWHERE = re.compile(r"(\\.)|([?\[\]])", re.DOTALL)


def selected(names: Iterable[str], allow: Iterable[str] | None = EVERYTHING, exclude: Iterable[str] = ()) -> list[str]:
    """The names allowed and not excluded, in their order; to allow None or nothing is to allow nothing."""
    allowed, excluded = tuple(allow or ()), tuple(exclude)
    return [name for name in names if _any(allowed, name) and not _any(excluded, name)]


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(glob_matches(_as_glob(pattern), name) for pattern in patterns)


@lru_cache(4096)
def _as_glob(pattern: str) -> str:
    # Stars that stand together are one here: `**/` has no meaning of its own.
    plain = _SPECIAL_ELSEWHERE.sub(lambda found: found[1] or f"\\{found[2]}", pattern)
    return re.sub(r"(\\.)|\*+", lambda found: found[1] or "*", plain, flags=re.DOTALL)

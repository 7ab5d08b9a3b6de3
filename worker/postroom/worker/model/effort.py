"""How much a model should think, in the words that each generation of models accepts."""

import re
from typing import Final

Version = tuple[int, int]
_OPENAI: Final = re.compile(r"gpt-(\d+)(?:\.(\d+))?")
_CLAUDE: Final = re.compile(r"claude(?:-[a-z]+)*-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_THINKERS: Final = re.compile(r"(^|/)(o[1-9]\b|gpt-([5-9]|\d\d)|claude)|reason|think|deepseek-r", re.IGNORECASE)

# A budget of tokens, as the word for providers that know no budgets: up to this many tokens.
_WORDS: Final = ((0, "none"), (4_096, "low"), (16_384, "medium"))
# A word, as the budget for models that know no words.
BUDGETS: Final = {"low": 2_048, "medium": 8_192, "high": 16_384, "max": 32_768}
# From which version on a model knows a word, and what stands for it before; the first that fits counts.
_OPENAI_WORDS: Final[dict[str, tuple[tuple[Version, str], ...]]] = {
    "max": (((5, 6), "max"), ((5, 2), "xhigh"), ((0, 0), "high")),
    "none": (((5, 1), "none"), ((5, 0), "minimal"), ((0, 0), "low")),
}
ADAPTIVE: Final[Version] = (4, 6)
NO_SAMPLING: Final[Version] = (4, 7)
_UNKNOWN: Final[Version] = (99, 0)


def thinks(upstream: str) -> bool:
    """Whether a model of this name is known to think before it speaks."""
    return bool(_THINKERS.search(upstream))


def word(effort: str | int) -> str:
    """An effort as a word."""
    if isinstance(effort, str):
        return effort
    return next((found for most, found in _WORDS if effort <= most), "high")


def openai(upstream: str, effort: str | int, plain: bool) -> str:
    """The word an OpenAI model understands; servers that only speak its language get the oldest words."""
    found = word(effort)
    match = _OPENAI.search(upstream)
    version = _version(match) if match and not plain else (0, 0)
    if plain and found == "none":
        return "none"
    return next((known for since, known in _OPENAI_WORDS.get(found, ()) if version >= since), found)


def claude(upstream: str) -> Version:
    """The version of a Claude model; one we cannot read is taken to be new."""
    match = _CLAUDE.search(upstream)
    return _version(match) if match else _UNKNOWN


def _version(match: re.Match[str]) -> Version:
    return int(match[1]), int(match[2] or 0)

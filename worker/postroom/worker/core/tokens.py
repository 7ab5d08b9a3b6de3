"""How many tokens something will cost, roughly: no tokenizer, no model, the same answer everywhere.

Latin text has about four characters to a token, Chinese, Japanese and Korean about one and a half. Pictures cost the
same however many bytes they have; files and recordings grow with theirs.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from postroom.worker.model.base import ToolSpec

Plain = dict[str, Any]
T = TypeVar("T")

# What a message and a tool cost besides their words.
MESSAGE, TOOL = 4, 10
PICTURE, SMALL_PICTURE, FILE = 1600, 85, 1600
# Bytes to a token: the text of a PDF's page among its fonts, and a second of compressed speech.
_BYTES_PER_TOKEN = {"document": 25, "audio": 1600}
# Hangul, kana and full-width forms, ideographs.
_WIDE = re.compile(
    "[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af\u3000-\u30ff\uff00-\uffef"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]+"
)


def of_text(text: str) -> int:
    """Tokens of plain words, rounded up."""
    if text.isascii():
        return -(-len(text) // 4)
    wide = sum(map(len, _WIDE.findall(text)))
    # wide / 1.5 + rest / 4, in whole numbers.
    return -(-(8 * wide + 3 * (len(text) - wide)) // 12)


def of_message(message: Plain) -> int:
    """Tokens of a message: its blocks, its calls, and the id of the call it answers."""
    total = MESSAGE + of_text(message.get("tool_call_id") or "")
    for block in message.get("content", ()):
        total += _BLOCKS.get(block["type"], _unknown)(block)
    for call in message.get("tool_calls", ()):
        total += of_text(call["id"]) + of_text(call["name"]) + of_text(written(call["arguments"]))
    return total


def of_tool(tool: ToolSpec) -> int:
    """Tokens of a tool's description and schema."""
    return TOOL + of_text(tool.name) + of_text(tool.description) + of_text(written(tool.parameters))


class Memo(Generic[T]):
    """A function of an object, worked out once for each.

    Messages and tools are never changed in place, so the object itself is the key. It is held here, so that its id
    cannot become another's.
    """

    def __init__(self, work: Callable[[Any], T], most: int = 50_000) -> None:
        self._work, self._most = work, most
        self._known: dict[int, tuple[Any, T]] = {}

    def __call__(self, subject: Any) -> T:
        found = self._known.get(id(subject))
        if found is None:
            if len(self._known) >= self._most:
                self._known.clear()
            found = self._known[id(subject)] = subject, self._work(subject)
        return found[1]


def written(value: Any) -> str:
    """Data as a model reads or writes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _text(block: Plain) -> int:
    return of_text(block["text"])


def _thinking(block: Plain) -> int:
    return of_text(block["text"]) + of_text(block.get("signature") or "")


def _picture(block: Plain) -> int:
    return SMALL_PICTURE if block.get("detail") == "low" else PICTURE


def _file(block: Plain) -> int:
    """By its size where that is known; a text in a file counts as text."""
    source = block["source"]
    size = len(source.get("data", "")) * 3 // 4
    if source.get("media_type", "").startswith("text/"):
        return size // 4 + of_text(block.get("title") or "")
    return max(FILE, size // _BYTES_PER_TOKEN[block["type"]])


def _unknown(block: Plain) -> int:
    return of_text(written(block))


_BLOCKS: dict[str, Callable[[Plain], int]] = {
    "text": _text,
    "thinking": _thinking,
    "image": _picture,
    "document": _file,
    "audio": _file,
}

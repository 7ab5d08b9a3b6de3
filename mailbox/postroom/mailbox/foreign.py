"""JSON of strangers, read so that what comes of it can be stored."""

import json
import re
from typing import Any, Final

_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")


def from_json(body: bytes) -> Any:
    """The data of a body; ValueError when it is none, or nests deeper than anybody means."""
    text = body.decode("utf-8-sig", "replace")
    try:
        found = json.loads(text)
        if _HALF.search(text):
            # Half a surrogate pair can be written in JSON and nowhere else.
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found

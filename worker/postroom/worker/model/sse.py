"""Server-sent events out of bytes, however those are cut."""

import re
from dataclasses import dataclass
from typing import Final

# More than any provider sends in one event; a peer that never ends a line must not eat the worker's memory.
MOST_BYTES: Final = 32 << 20
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `name` is empty when none was given."""

    name: str
    data: bytes


class EventTooLarge(ValueError):
    """A single event grew past what is reasonable."""


class Decoder:
    """Fed with bytes as they arrive, gives the events that are complete."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._name = ""
        self._size = 0
        self._after_cr = False
        self._begun = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events these bytes complete."""
        if not chunk:
            return []
        # A line end may itself be cut in two: the second half must not count as another, empty line.
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        first, *more = _LINE_END.split(chunk)
        self._rest += first
        if len(self._rest) + self._size > MOST_BYTES:
            raise EventTooLarge(f"an event of more than {MOST_BYTES} bytes")
        events: list[Event] = []
        for line in more:
            self._line(bytes(self._rest), events)
            self._rest = bytearray(line)
        return events

    def finish(self) -> list[Event]:
        """What was complete but for its last empty line; some servers leave that out."""
        events: list[Event] = []
        self._line(bytes(self._rest), events)
        self._line(b"", events)
        self._rest.clear()
        return events

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(Event(self._name, b"\n".join(self._data)))
            self._data, self._name, self._size = [], "", 0
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
        elif field == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace")

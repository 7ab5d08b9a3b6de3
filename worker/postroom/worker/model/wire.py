"""What the ways of talking to providers have in common: how each asks, how it is heard, and words for content."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from postroom.mailbox.contracts import Usage
from postroom.mailbox.foreign import from_json
from postroom.worker.model import sse
from postroom.worker.model.base import CallPart, Limits, Part, Plain, Request, Stop, ToolSpec
from postroom.worker.model.errors import RequestRejected, StreamInterrupted

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_NAME_LENGTH: Final = 64


@dataclass(frozen=True, slots=True)
class Card:
    """What must be known of a model to ask it: its name at the provider, its size, whether it thinks first.

    `plain` is set for servers that speak OpenAI's language but not its latest words.
    """

    name: str
    upstream: str
    limits: Limits = Limits()
    reasoning: bool = False
    plain: bool = False


class Heard(Protocol):
    """One answer being heard. `stop` is there once the model said why it stopped, `ended` once nothing can follow."""

    stop: Stop | None
    usage: Usage | None
    ended: bool

    def hear(self, event: sse.Event) -> list[Part]:
        """The parts an event holds, or the error it stands for."""
        ...

    def whole(self, body: Plain) -> list[Part]:
        """The parts of an answer that came in one piece."""
        ...


class Wire(Protocol):
    """One provider's language."""

    path: str

    def headers(self, key: str | None, url: str) -> dict[str, str]:
        """What goes with every request."""
        ...

    def body(self, request: Request, card: Card, streaming: bool) -> Plain:
        """The request in the provider's words."""
        ...

    def heard(self, card: Card, names: "Names", new_id: Callable[[], str]) -> Heard:
        """A fresh pair of ears."""
        ...


def blocks(message: Plain) -> list[Plain]:
    """A message's content, which may also be bare words."""
    content = message.get("content") or ()
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def text_of(message: Plain) -> str:
    """The words alone."""
    return "".join(block["text"] for block in blocks(message) if block["type"] == "text")


def data_url(source: Plain) -> str:
    """Where to find the bytes: a real URL, or one that carries them."""
    return source["url"] if source["kind"] == "url" else f"data:{source['media_type']};base64,{source['data']}"


def arguments_text(call: Plain) -> str:
    """A call's arguments as the text a model wrote."""
    arguments = call.get("arguments", {})
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def cannot_send(card: Card, block: Plain) -> RequestRejected:
    """A block this provider has no words for."""
    return RequestRejected(f"{card.name}: this provider takes no {block['type']}; leave it out or choose another model")


def data_of(event: sse.Event) -> Plain:
    """An event's data; what is not a JSON object means that the stream is broken."""
    try:
        found = from_json(event.data)
    except ValueError:
        raise StreamInterrupted("the answer holds an event that is not JSON") from None
    if not isinstance(found, dict):
        raise StreamInterrupted("the answer holds an event that is not a JSON object")
    return found


def count(values: Any, *path: str) -> int:
    """A number found along a path, or 0."""
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return int(values) if isinstance(values, int | float) else 0


def without_none(**values: Any) -> Plain:
    """Only what was given."""
    return {name: value for name, value in values.items() if value is not None}


class Names:
    """Tool names as providers accept them, and back: theirs allow letters, digits, `_` and `-`, ours more."""

    def __init__(self, tools: Iterable[ToolSpec] = ()) -> None:
        self._real: dict[str, str] = {}
        self._safe: dict[str, str] = {}
        for tool in tools:
            self.safe(tool.name)

    def safe(self, name: str) -> str:
        """The provider's name of a tool."""
        if name not in self._safe:
            short = plain = _UNSAFE.sub("_", name)[:_NAME_LENGTH]
            number = 1
            while self._real.get(short, name) != name:
                number += 1
                short = f"{plain[: _NAME_LENGTH - 3]}_{number}"
            self._safe[name], self._real[short] = short, name
        return self._safe[name]

    def real(self, name: str) -> str:
        """Our name of a tool; a name the model made up is passed on as it is."""
        return self._real.get(name, name)


@dataclass(slots=True)
class _Call:
    id: str
    given_id: str
    name: str = ""
    told: bool = False
    pieces: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        try:
            return isinstance(json.loads("".join(self.pieces)), dict)
        except ValueError:
            return False


class Calls:
    """Tells the calls of one answer apart when providers leave out indexes, ids or names, or use one twice."""

    def __init__(self, names: Names, new_id: Callable[[], str]) -> None:
        self._names, self._new_id = names, new_id
        self._all: list[_Call] = []
        self._by_index: dict[Any, _Call] = {}

    def __len__(self) -> int:
        return len(self._all)

    def take(self, index: Any = None, call_id: str = "", name: str = "", arguments: Any = "") -> list[Part]:
        """One more piece of some call; nothing is told of a call before its name is known."""
        call = self._which(index, call_id, name)
        if call is None:
            return []
        text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        call.name = call.name or name
        call.pieces.append(text)
        if call.told:
            return [CallPart(call.id, "", text)] if text else []
        if not call.name:
            return []
        call.told = True
        return [CallPart(call.id, self._names.real(call.name), "".join(call.pieces))]

    def flush(self) -> list[Part]:
        """Calls that never got a name: they must be answered too, if only to say that there is no such tool."""
        late = [call for call in self._all if not call.told]
        for call in late:
            call.told = True
        return [CallPart(call.id, "unnamed", "".join(call.pieces)) for call in late]

    def _which(self, index: Any, call_id: str, name: str) -> _Call | None:
        if index is not None:
            known = self._by_index.get(index)
            # Some servers give every parallel call the index 0 and only the ids differ.
            if known is None or (call_id and known.given_id and call_id != known.given_id):
                known = self._by_index[index] = self._begin(call_id)
            known.given_id = known.given_id or call_id
            return known
        if call_id:
            known = next((call for call in self._all if call.given_id == call_id), None)
            return known or self._begin(call_id)
        last = self._all[-1] if self._all else None
        if name and (last is None or last.name not in ("", name) or last.complete):
            return self._begin("")
        return last

    def _begin(self, call_id: str) -> _Call:
        taken = {call.id for call in self._all}
        call = _Call(call_id if call_id and call_id not in taken else self._new_id(), call_id)
        self._all.append(call)
        return call

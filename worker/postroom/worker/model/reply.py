"""A whole answer, put together from its parts."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from postroom.mailbox.contracts import Usage
from postroom.worker.model.base import (
    CallDropped,
    CallPart,
    Part,
    Plain,
    ReasoningPart,
    Reset,
    Stop,
    StopReason,
    TextPart,
    UsagePart,
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the model wrote it; `arguments` is text until it is known to be complete."""

    id: str
    name: str
    arguments: str = ""

    @property
    def parsed(self) -> dict[str, Any] | None:
        """The arguments as data, or None when the text is not a JSON object. No text at all means no arguments."""
        try:
            found = json.loads(self.arguments or "{}")
        except ValueError:
            return None
        return {} if found is None else found if isinstance(found, dict) else None

    def as_dict(self) -> Plain:
        """As it stands in the log."""
        parsed = self.parsed
        return {"id": self.id, "name": self.name, "arguments": self.arguments if parsed is None else parsed}


@dataclass(frozen=True, slots=True)
class Reply:
    """What has been said so far; `stop` is None while the model is still talking."""

    text: str = ""
    thoughts: tuple[Plain, ...] = ()
    calls: tuple[Call, ...] = ()
    dropped: tuple[CallDropped, ...] = ()
    usage: Usage = field(default_factory=Usage)
    stop: StopReason | None = None

    @property
    def empty(self) -> bool:
        """Neither words nor calls."""
        return not self.text.strip() and not self.calls

    def as_message(self) -> Plain:
        """As it stands in the log: reasoning, words, calls."""
        words = [{"type": "text", "text": self.text}] if self.text else []
        message: Plain = {"role": "assistant"}
        if content := [*self.thoughts, *words]:
            message["content"] = content
        if self.calls:
            message["tool_calls"] = [call.as_dict() for call in self.calls]
        return message


class Listener:
    """Hears the parts of one answer; `reply()` may be asked at any time."""

    def __init__(self) -> None:
        self._usage = Usage()
        self._clear()

    def _clear(self) -> None:
        self._text: list[str] = []
        self._thoughts: list[Plain] = []
        self._calls: dict[str, list[str]] = {}
        self._dropped: list[CallDropped] = []
        self._stop: StopReason | None = None

    def hear(self, part: Part) -> None:
        """Takes one part in."""
        match part:
            case TextPart(text):
                self._text.append(text)
            case ReasoningPart(text, signature):
                self._reason(text, signature)
            case CallPart(call_id, name, arguments):
                known = self._calls.setdefault(call_id, [name])
                known[0] = known[0] or name
                known.append(arguments)
            case UsagePart(usage):
                self._usage = usage
            case CallDropped(call_id):
                self._calls.pop(call_id, None)
                self._dropped.append(part)
            case Reset():
                self._clear()
            case Stop(reason):
                self._stop = reason

    def _reason(self, text: str, signature: str | None) -> None:
        # A signature closes a block of reasoning: what follows is another one.
        if not self._thoughts or "signature" in self._thoughts[-1]:
            self._thoughts.append({"type": "thinking", "text": ""})
        self._thoughts[-1]["text"] += text
        if signature is not None:
            self._thoughts[-1]["signature"] = signature

    def reply(self) -> Reply:
        """The answer as far as it was heard."""
        calls = tuple(Call(call_id, name, "".join(pieces)) for call_id, (name, *pieces) in self._calls.items())
        thoughts = tuple(dict(thought) for thought in self._thoughts)
        return Reply("".join(self._text), thoughts, calls, tuple(self._dropped), self._usage, self._stop)


def joined(first: Reply, second: Reply) -> Reply:
    """One answer given in two goes: the second continues the words of the first."""
    return replace(
        second,
        text=first.text + second.text,
        thoughts=first.thoughts + second.thoughts,
        calls=first.calls + second.calls,
        dropped=first.dropped + second.dropped,
        usage=first.usage + second.usage,
    )


def whole(parts: Iterable[Part]) -> Reply:
    """The answer those parts make."""
    listener = Listener()
    for part in parts:
        listener.hear(part)
    return listener.reply()

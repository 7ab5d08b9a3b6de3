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
    """What has been said so far; `stop` is None while the model is still talking.

    `content` is words and reasoning in the order they came.
    """

    text: str = ""
    thoughts: tuple[Plain, ...] = ()
    calls: tuple[Call, ...] = ()
    dropped: tuple[CallDropped, ...] = ()
    usage: Usage = field(default_factory=Usage)
    stop: StopReason | None = None
    content: tuple[Plain, ...] = ()

    @property
    def empty(self) -> bool:
        """Neither words nor calls."""
        return not self.text.strip() and not self.calls

    def as_message(self) -> Plain:
        """As it stands in the log: reasoning and words, then calls."""
        message: Plain = {"role": "assistant"}
        if content := self._blocks():
            message["content"] = content
        if self.calls:
            message["tool_calls"] = [call.as_dict() for call in self.calls]
        return message

    def _blocks(self) -> list[Plain]:
        words = "".join(block["text"] for block in self.content if block["type"] == "text")
        thoughts = tuple(block for block in self.content if block["type"] == "thinking")
        if (words, thoughts) == (self.text, self.thoughts):
            return list(self.content)
        # Somebody changed the words since: where in between the reasoning stood is no longer known.
        return [*self.thoughts, *([{"type": "text", "text": self.text}] if self.text else [])]


class Listener:
    """Hears the parts of one answer; `reply()` may be asked at any time."""

    def __init__(self) -> None:
        self._usage = Usage()
        self._clear()

    def _clear(self) -> None:
        self._content: list[tuple[str, list[str], str | None]] = []
        self._calls: dict[str, list[str]] = {}
        self._dropped: list[CallDropped] = []
        self._stop: StopReason | None = None

    def hear(self, part: Part) -> None:
        """Takes one part in."""
        match part:
            case TextPart(text):
                self._add("text", text)
            case ReasoningPart(text, signature):
                self._add("thinking", text, signature)
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

    def _add(self, kind: str, text: str, signature: str | None = None) -> None:
        # A signature closes a block of reasoning: what follows is another one.
        last = self._content[-1] if self._content else None
        if last is None or last[0] != kind or last[2] is not None:
            last = (kind, [], None)
            self._content.append(last)
        last[1].append(text)
        if signature is not None:
            self._content[-1] = (kind, last[1], signature)

    def reply(self) -> Reply:
        """The answer as far as it was heard."""
        calls = tuple(Call(call_id, name, "".join(pieces)) for call_id, (name, *pieces) in self._calls.items())
        content = tuple(_block(*block) for block in self._content)
        text = "".join(block["text"] for block in content if block["type"] == "text")
        thoughts = tuple(block for block in content if block["type"] == "thinking")
        return Reply(text, thoughts, calls, tuple(self._dropped), self._usage, self._stop, content)


def _block(kind: str, pieces: list[str], signature: str | None) -> Plain:
    return {"type": kind, "text": "".join(pieces)} | ({} if signature is None else {"signature": signature})


def joined(first: Reply, second: Reply) -> Reply:
    """One answer given in two goes: the second continues the words of the first."""
    return replace(
        second,
        text=first.text + second.text,
        thoughts=first.thoughts + second.thoughts,
        calls=first.calls + second.calls,
        dropped=first.dropped + second.dropped,
        usage=first.usage + second.usage,
        content=_merged(first.content, second.content),
    )


def _merged(first: tuple[Plain, ...], second: tuple[Plain, ...]) -> tuple[Plain, ...]:
    """The blocks of both; words that were broken off go on in one block."""
    if first and second and first[-1]["type"] == second[0]["type"] == "text":
        seam = {"type": "text", "text": first[-1]["text"] + second[0]["text"]}
        return (*first[:-1], seam, *second[1:])
    return first + second


def whole(parts: Iterable[Part]) -> Reply:
    """The answer those parts make."""
    listener = Listener()
    for part in parts:
        listener.hear(part)
    return listener.reply()

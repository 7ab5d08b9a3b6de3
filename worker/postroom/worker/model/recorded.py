"""Answers kept in a file: wrap any model to record them, and play them back without it."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from postroom.mailbox.contracts import Usage
from postroom.mailbox.errors import InvalidInput
from postroom.worker.model.base import (
    CallDropped,
    CallPart,
    Limits,
    Model,
    Part,
    Plain,
    ReasoningPart,
    Request,
    Reset,
    Stop,
    StopReason,
    TextPart,
    UsagePart,
)
from postroom.worker.model.errors import ModelError, RequestRejected
from postroom.worker.model.retrying import opened
from postroom.worker.model.scripted import ScriptNotFinished, error_of

_KINDS: dict[str, type[Any]] = {
    "text": TextPart,
    "reasoning": ReasoningPart,
    "call": CallPart,
    "usage": UsagePart,
    "reset": Reset,
    "call_dropped": CallDropped,
    "stop": Stop,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_READ: dict[str, Callable[[Plain], Part]] = {
    "usage": lambda data: UsagePart(Usage.model_validate(data["usage"])),
    "stop": lambda data: Stop(StopReason(data["reason"])),
}


def part_as_dict(part: Part) -> Plain:
    """A part as plain data."""
    if isinstance(part, UsagePart):
        return {"type": "usage", "usage": part.usage.as_dict()}
    return {"type": _NAMES[type(part)]} | {name: value for name, value in asdict(part).items() if value is not None}


def part_from_dict(data: Plain) -> Part:
    """The part of plain data."""
    kind, given = data["type"], {name: value for name, value in data.items() if name != "type"}
    found: Part = _READ[kind](given) if kind in _READ else _KINDS[kind](**given)
    return found


def asked(request: Request) -> Plain:
    """What a request asks for, without who asks: two that ask the same get the same answer."""
    return {
        "messages": list(request.messages),
        "tools": [asdict(tool) for tool in request.tools],
        "options": asdict(request.options),
        **({"upstream": request.upstream} if request.upstream else {}),
    }


def digest(question: Plain) -> str:
    """What tells one question from another."""
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()


class Recording:
    """A model whose every answer is written to a file as soon as it is over."""

    def __init__(self, model: Model, path: Path | str) -> None:
        self.model = model
        self._path = Path(path)
        self._exchanges: list[Plain] = []
        self._writing = asyncio.Lock()

    @property
    def name(self) -> str:
        """How people call it."""
        return self.model.name

    @property
    def limits(self) -> Limits:
        """What is known of its size and price."""
        return self.model.limits

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        """The model's own answer."""
        exchange: Plain = {"request": asked(request), "parts": []}
        try:
            async with opened(self.model, request) as parts:
                async for part in parts:
                    exchange["parts"].append(part_as_dict(part))
                    yield part
        except ModelError as error:
            exchange["error"] = {"code": error.code, "message": error.message, "retry_after": error.retry_after}
            raise
        finally:
            self._exchanges.append(exchange)
            async with self._writing:
                await asyncio.to_thread(self._write)

    def _write(self) -> None:
        tape = {"model": self.name, "limits": asdict(self.limits), "exchanges": self._exchanges}
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.write_text(json.dumps(tape, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        fresh.replace(self._path)


class Replay:
    """Plays a recording back. The same question asked again gets the next answer to it; an unknown one is refused."""

    def __init__(self, tape: Plain, name: str = "") -> None:
        self.name = name or str(tape["model"])
        self.limits = Limits(**tape.get("limits", {}))
        self._answers: dict[str, list[Plain]] = {}
        for exchange in tape["exchanges"]:
            self._answers.setdefault(digest(exchange["request"]), []).append(exchange)

    @classmethod
    def read(cls, path: Path | str) -> "Replay":
        """The recording in a file."""
        try:
            return cls(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise InvalidInput(f"recording {str(path)!r}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"recording {str(path)!r} is not one: {error!r}") from None

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        """The answer that was given then."""
        left = self._answers.get(digest(asked(request)))
        if not left:
            raise RequestRejected(f"the recording of {self.name} has no answer (left) to this request")
        exchange = left.pop(0)
        for data in exchange["parts"]:
            yield part_from_dict(data)
        if error := exchange.get("error"):
            raise error_of(error["code"], error["message"], error.get("retry_after"), self.name)

    def verify(self) -> None:
        """Raises when answers are left that nobody asked for."""
        if left := sum(len(answers) for answers in self._answers.values()):
            raise ScriptNotFinished(f"the recording of {self.name} has {left} answers that nobody asked for")

"""A model that follows a script: for tests, demos and replays."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from postroom.mailbox.contracts import Usage
from postroom.worker.model.base import (
    CallPart,
    Limits,
    Part,
    ReasoningPart,
    Request,
    Stop,
    StopReason,
    TextPart,
    UsagePart,
)
from postroom.worker.model.errors import RequestRejected

Answer = str | dict[str, Any] | Exception
Script = Sequence[Answer] | Callable[[Request], Answer]


class ScriptedModel:
    """Gives the n-th answer to a conversation that holds n-1 answers already, so that a repeated request is harmless.

    An answer is words, an error to raise, or a map: `say`, `think`, `calls` (each `{name, arguments, id?}`), `chunk`
    (characters per part), `pause` seconds before each part, `usage`, `stop`. A function is given the request instead.
    """

    def __init__(self, script: Script = (), name: str = "scripted", limits: Limits | None = None) -> None:
        self.name = name
        self.script = script
        self.limits = limits or Limits()
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        """The answer that is next."""
        self.requests.append(request)
        answer = self.script(request) if callable(self.script) else self._next(self.script, request)
        if isinstance(answer, Exception):
            raise answer
        given: dict[str, Any] = {"say": answer} if isinstance(answer, str) else answer
        for part in _parts(given, _turn(request)):
            if given.get("pause"):
                await asyncio.sleep(given["pause"])
            yield part

    def _next(self, script: Sequence[Answer], request: Request) -> Answer:
        turn = _turn(request)
        if turn >= len(script):
            raise RequestRejected(f"the script of {self.name} has {len(script)} answers, asked for {turn + 1}")
        return script[turn]


def _turn(request: Request) -> int:
    return sum(1 for message in request.messages if message["role"] == "assistant")


def _parts(given: dict[str, Any], turn: int) -> list[Part]:
    parts: list[Part] = []
    size = given.get("chunk") or 1 << 30
    parts += [ReasoningPart(piece) for piece in _pieces(given.get("think", ""), size)]
    parts += [TextPart(piece) for piece in _pieces(given.get("say", ""), size)]
    for place, call in enumerate(given.get("calls", ())):
        call_id = call.get("id") or f"call-{turn + 1}-{place + 1}"
        arguments = call.get("arguments", {})
        words = arguments if isinstance(arguments, str) else json.dumps(arguments)
        parts.append(CallPart(call_id, call["name"]))
        parts += [CallPart(call_id, "", piece) for piece in _pieces(words, size)]
    usage = given.get("usage")
    parts.append(UsagePart(Usage.model_validate(usage) if usage else Usage(input_tokens=10, output_tokens=5)))
    stop = given.get("stop") or (StopReason.TOOL_USE if given.get("calls") else StopReason.END_TURN)
    parts.append(Stop(StopReason(stop)))
    return parts


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]

"""A model that follows a script: for tests, demos and replays."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from postroom.mailbox.contracts import Usage
from postroom.mailbox.errors import InvalidInput
from postroom.worker.model import errors
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
from postroom.worker.model.errors import ModelError, RequestRejected
from postroom.worker.model.wire import text_of

Answer = str | dict[str, Any] | Exception | list[Any]
Script = Sequence[Answer] | Callable[[Request], Answer]

_ERRORS: dict[str, type[ModelError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ModelError) and kind is not ModelError
}
_WORDS = frozenset(
    {
        "say",
        "think",
        "calls",
        "chunk",
        "delay",
        "pause",
        "usage",
        "stop",
        "error",
        "message",
        "retry_after",
        "expect",
    }
)


class ScriptNotFinished(AssertionError):
    """Answers of a script that nobody asked for."""


class ScriptedModel:
    """Gives the n-th answer to a conversation that holds n-1 answers already, so that a repeated request is harmless.

    An answer is words, an error to raise, or a map: `say`, `think`, `calls` (each `{name, arguments, id?}`), `chunk`
    (characters per part), `delay` seconds before the first part, `pause` seconds before each part, `usage`, `stop`,
    `error` (a code, raised after the parts) with `message` and `retry_after`, `expect` (words the last message must
    hold). A list holds one answer for each time the same turn of a conversation is asked for; the last is repeated.
    A function is given the request instead. A request the script does not foresee is refused; `verify` raises when an
    answer was never asked for.
    """

    def __init__(self, script: Script = (), name: str = "scripted", limits: Limits | None = None) -> None:
        self.name = name
        self.script = script
        self.limits = limits or Limits()
        self.requests: list[Request] = []
        self._asked: Counter[tuple[str, int]] = Counter()

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        """The answer that is next."""
        self.requests.append(request)
        turn = _turn(request)
        self._asked[request.routing_key, turn] += 1
        answer = self.script(request) if callable(self.script) else self._next(self.script, turn)
        if isinstance(answer, list):
            answer = answer[min(self._asked[request.routing_key, turn], len(answer)) - 1]
        if isinstance(answer, Exception):
            raise answer
        given: dict[str, Any] = {"say": answer} if isinstance(answer, str) else answer
        self._check(given, request)
        if given.get("delay"):
            await asyncio.sleep(given["delay"])
        for part in _parts(given, turn):
            if given.get("pause"):
                await asyncio.sleep(given["pause"])
            yield part
        if code := given.get("error"):
            raise error_of(code, given.get("message"), given.get("retry_after"), self.name)

    def verify(self) -> None:
        """Raises when the script has answers that were never asked for."""
        if callable(self.script):
            return
        turns = {turn for _, turn in self._asked}
        most = {turn: max(count for (_, each), count in self._asked.items() if each == turn) for turn in turns}
        for turn, answer in enumerate(self.script):
            wanted = len(answer) if isinstance(answer, list) else 1
            if most.get(turn, 0) < wanted:
                raise ScriptNotFinished(
                    f"{self.name}: answer {turn + 1} of {len(self.script)} was asked for "
                    f"{most.get(turn, 0)} times, not {wanted}"
                )

    def _next(self, script: Sequence[Answer], turn: int) -> Answer:
        if turn >= len(script):
            raise RequestRejected(f"the script of {self.name} has {len(script)} answers, asked for {turn + 1}")
        return script[turn]

    def _check(self, given: dict[str, Any], request: Request) -> None:
        if odd := sorted(given.keys() - _WORDS):
            raise RequestRejected(f"{self.name}: an answer of the script has {odd[0]!r}, which means nothing")
        expected = given.get("expect")
        if expected is not None and not (request.messages and expected in text_of(request.messages[-1])):
            raise RequestRejected(f"{self.name}: the script expected {expected!r} in the last message")


def parse(name: str, text: str) -> ScriptedModel:
    """A scripted model from a string: words said every time, a JSON list of answers, or `@` and a file with one."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"model {name!r}: {error.strerror}") from None
    elif not text.startswith("["):
        return ScriptedModel(lambda _: text, name)
    try:
        script = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"model {name[:60]!r}: its script is not JSON: {error}") from None
    if not isinstance(script, list) or not all(isinstance(each, str | dict | list) for each in script):
        raise InvalidInput(f"model {name[:60]!r}: its script must be a list of texts, maps and lists")
    return ScriptedModel(script, name)


def _turn(request: Request) -> int:
    """How many answers the conversation holds; one that broke off and is to be continued is none yet."""
    said = (message for message in request.messages if message["role"] == "assistant")
    return sum(1 for message in said if not message.get("metadata", {}).get("partial"))


def error_of(code: str, message: str | None, retry_after: float | None, name: str) -> ModelError:
    """The error of a code, with or without its first word."""
    kind = _ERRORS.get(code) or _ERRORS.get(f"model_{code}")
    if kind is None:
        return RequestRejected(f"{name}: the script raises {code!r}, which is no error of a model")
    return kind(message or f"{name}: as the script says", retry_after)


_SOME_TOKENS = Usage(input_tokens=10, output_tokens=5)


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
    if given.get("error"):
        return parts
    usage = given.get("usage")
    parts.append(UsagePart(Usage.model_validate(usage) if usage else _SOME_TOKENS))
    stop = given.get("stop") or (StopReason.TOOL_USE if given.get("calls") else StopReason.END_TURN)
    parts.append(Stop(StopReason(stop)))
    return parts


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]

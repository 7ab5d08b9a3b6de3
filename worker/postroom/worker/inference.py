"""Asking a model: its answer told as it comes, continued when it was cut off, asked for again when it was empty."""

from dataclasses import replace
from typing import Any

from postroom.worker.core.errors import EmptyReply
from postroom.worker.loop import Pen, Plain
from postroom.worker.model.base import (
    CallDropped,
    CallPart,
    Model,
    Part,
    ReasoningPart,
    Request,
    Reset,
    StopReason,
    TextPart,
)
from postroom.worker.model.reply import Listener, Reply, joined

GO_ON = "Your answer was cut off. Go on exactly where it ended, without repeating anything."
SAY_SOMETHING = "Your last answer was empty. Answer now, or call a tool."


async def infer(model: Model, request: Request, pen: Pen, continuations: int, nudges: int, hold: bool = False) -> Reply:
    """The whole answer. What is added to the request to get it is not kept. With `hold` its words are not told yet."""
    reply = await _once(model, request, pen, hold)
    while True:
        if _cut_off(reply) and continuations > 0:
            continuations -= 1
            more = await _once(model, _followed(request, reply, GO_ON), pen, hold)
            reply = joined(replace(reply, calls=tuple(call for call in reply.calls if call.parsed is not None)), more)
        elif reply.empty and not reply.dropped:
            if nudges <= 0:
                raise EmptyReply(f"{model.name} gave no answer; it was asked again as often as the agent allows")
            nudges -= 1
            reply = joined(reply, await _once(model, _followed(request, reply, SAY_SOMETHING), pen, hold))
        else:
            break
    return reply


def _cut_off(reply: Reply) -> bool:
    """Words alone, or calls of which none is complete."""
    return reply.stop is StopReason.MAX_TOKENS and all(call.parsed is None for call in reply.calls)


def _followed(request: Request, reply: Reply, words: str) -> Request:
    said: list[Plain] = [reply.as_message()] if reply.text else []
    for message in said:
        message.pop("tool_calls", None)
    said.append({"role": "user", "content": [{"type": "text", "text": words}]})
    return replace(request, messages=(*request.messages, *said))


async def _once(model: Model, request: Request, pen: Pen, hold: bool) -> Reply:
    listener, teller = Listener(), _Teller(pen, hold)
    async for part in model.stream(request):
        listener.hear(part)
        teller.hear(part, listener)
    reply = listener.reply()
    teller.ready(reply)
    return reply


class _Teller:
    """Tells followers of the run what the model says, as it says it."""

    def __init__(self, pen: Pen, hold: bool) -> None:
        self.pen = pen
        self.hold = hold
        self.started: dict[str, str] = {}

    def hear(self, part: Part, listener: Listener) -> None:
        match part:
            case TextPart() | ReasoningPart() if self.hold:
                pass
            case TextPart(text) if text:
                self.pen.tell({"type": "text_delta", "delta": text})
            case ReasoningPart(text) if text:
                self.pen.tell({"type": "reasoning_delta", "delta": text})
            case CallPart(call_id, name, arguments):
                self._call(call_id, name, arguments)
            case CallDropped(call_id, name, reason):
                self.started.pop(call_id, None)
                self.pen.tell({"type": "tool_call_cancel", "id": call_id, "name": name, "reason": reason})
            case Reset(reason):
                self.started.clear()
                self.pen.tell({"type": "stream_reset", "reason": reason})
            case _:
                pass

    def _call(self, call_id: str, name: str, arguments: str) -> None:
        if call_id not in self.started:
            self.started[call_id] = name
            self.pen.tell({"type": "tool_call_start", "id": call_id, "name": name})
        if arguments:
            self.pen.tell({"type": "tool_call_delta", "id": call_id, "args_delta": arguments})

    def ready(self, reply: Reply) -> None:
        """The calls whose arguments are complete."""
        for call in reply.calls:
            arguments: Any = call.parsed
            if arguments is not None:
                self.pen.tell({"type": "tool_call_ready", "id": call.id, "name": call.name, "arguments": arguments})

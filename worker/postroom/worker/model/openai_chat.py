"""OpenAI's chat completions, as spoken by OpenAI, Azure, vLLM, Ollama, OpenRouter and many others."""

import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from postroom.mailbox.contracts import Usage
from postroom.worker.model import effort, sse
from postroom.worker.model.base import Options, Part, Plain, ReasoningPart, Request, Stop, StopReason, TextPart
from postroom.worker.model.errors import ContentFiltered
from postroom.worker.model.refusal import refusal
from postroom.worker.model.schema import is_strict
from postroom.worker.model.wire import (
    Calls,
    Card,
    Names,
    arguments_text,
    blocks,
    cannot_send,
    count,
    data_of,
    data_url,
    text_of,
    without_none,
)

_STOPS: Final = {
    "stop": StopReason.END_TURN,
    "length": StopReason.MAX_TOKENS,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
}
_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def bearer(key: str | None, url: str) -> dict[str, str]:
    """The key as OpenAI wants it, and as Azure does."""
    if key is None:
        return {}
    headers = {"authorization": f"Bearer {key}"}
    if (urlsplit(url).hostname or "").endswith(".azure.com"):
        headers["api-key"] = key
    return headers


class ChatCompletions:
    """How to ask."""

    path = "/chat/completions"

    def headers(self, key: str | None, url: str) -> dict[str, str]:
        """What goes with every request."""
        return bearer(key, url)

    def body(self, request: Request, card: Card, streaming: bool) -> Plain:
        """The request in the provider's words."""
        names = Names(request.tools)
        found: Plain = {
            "model": request.upstream or card.upstream,
            "messages": _messages(request.messages, card, names),
            **_options(request.options, card),
        }
        if streaming:
            found |= {"stream": True, "stream_options": {"include_usage": True}}
        if request.tools:
            found["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": names.safe(tool.name),
                        "description": tool.description,
                        "parameters": tool.parameters,
                    },
                }
                for tool in request.tools
            ]
        if request.options.cache_prompt and request.routing_key and not card.plain:
            # Requests of one thread share a prefix; the key leads them to the machine that has it in its cache.
            found["prompt_cache_key"] = request.routing_key[:64]
        return found

    def heard(self, card: Card, names: Names, new_id: Callable[[], str]) -> "ChatHeard":
        """A fresh pair of ears."""
        return ChatHeard(card, Calls(names, new_id))


def _options(options: Options, card: Card) -> Plain:
    found = without_none(temperature=options.temperature, top_p=options.top_p)
    if options.max_tokens is not None:
        found["max_tokens" if card.plain else "max_completion_tokens"] = options.max_tokens
    if options.effort is not None:
        found["reasoning_effort"] = effort.openai(card.upstream, options.effort, card.plain)
    if options.output:
        shape = options.output
        found["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": shape.name, "schema": shape.schema, "strict": is_strict(shape.schema)},
        }
    return found


def _messages(messages: tuple[Plain, ...], card: Card, names: Names) -> list[Plain]:
    found: list[Plain] = []
    shown: list[Plain] = []
    for message in messages:
        if message["role"] == "tool":
            found.append({"role": "tool", "tool_call_id": message["tool_call_id"], "content": text_of(message)})
            # A tool's message may only carry words here, so its pictures are shown right after the results.
            shown += [_block(block, card) for block in blocks(message) if block["type"] not in ("text", "thinking")]
            continue
        if shown:
            found.append({"role": "user", "content": shown})
            shown = []
        found.append(_assistant(message, names) if message["role"] == "assistant" else _said(message, card))
    return found + ([{"role": "user", "content": shown}] if shown else [])


def _assistant(message: Plain, names: Names) -> Plain:
    found: Plain = {"role": "assistant", "content": text_of(message) or None}
    if calls := message.get("tool_calls"):
        found["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": names.safe(call["name"]), "arguments": arguments_text(call)},
            }
            for call in calls
        ]
    elif found["content"] is None:
        found["content"] = ""
    return found


def _said(message: Plain, card: Card) -> Plain:
    content = blocks(message)
    if all(block["type"] == "text" for block in content):
        return {"role": message["role"], "content": text_of(message)}
    return {"role": message["role"], "content": [_block(block, card) for block in content]}


def _block(block: Plain, card: Card) -> Plain:
    source = block.get("source", {})
    match block["type"], source.get("kind"):
        case "text", _:
            return {"type": "text", "text": block["text"]}
        case "image", _:
            return {"type": "image_url", "image_url": without_none(url=data_url(source), detail=block.get("detail"))}
        case "document", "base64":
            title = block.get("title") or "document"
            return {"type": "file", "file": {"filename": title, "file_data": data_url(source)}}
        case "audio", "base64" if source["media_type"] in _AUDIO:
            sound = {"data": source["data"], "format": _AUDIO[source["media_type"]]}
            return {"type": "input_audio", "input_audio": sound}
    raise cannot_send(card, block)


class ChatHeard:
    """One answer being heard."""

    def __init__(self, card: Card, calls: Calls) -> None:
        self.stop: Stop | None = None
        self.usage: Usage | None = None
        self.ended = False
        self._card = card
        self._calls = calls

    def hear(self, event: sse.Event) -> list[Part]:
        """The parts an event holds, or the error it stands for."""
        if event.data.strip() == b"[DONE]":
            self.ended = True
            self.stop = self.stop or self._stopped("stop")
            return self._calls.flush()
        chunk = data_of(event)
        if chunk.get("error") or event.name == "error":
            raise refusal(self._card.name, chunk)
        self._count(chunk)
        parts: list[Part] = []
        for choice in (chunk.get("choices") or ())[:1]:
            parts += self._message(choice.get("delta") or {})
            parts += self._finish(choice.get("finish_reason"))
        return parts

    def whole(self, body: Plain) -> list[Part]:
        """The parts of an answer that came in one piece."""
        if body.get("error"):
            raise refusal(self._card.name, body)
        self._count(body)
        choice: Plain = (body.get("choices") or [{}])[0]
        message = choice.get("message") or {}
        calls = [{"index": place, **call} for place, call in enumerate(message.get("tool_calls") or ())]
        parts = self._message({**message, "tool_calls": calls})
        return parts + self._finish(choice.get("finish_reason") or "stop")

    def _message(self, said: Plain) -> list[Part]:
        parts: list[Part] = []
        if thought := _words(said.get("reasoning_content") or said.get("reasoning")):
            parts.append(ReasoningPart(thought))
        if text := _words(said.get("content")) or _words(said.get("refusal")):
            parts.append(TextPart(text))
        for call in said.get("tool_calls") or ():
            function = call.get("function") or {}
            parts += self._calls.take(
                call.get("index"), call.get("id") or "", function.get("name") or "", function.get("arguments")
            )
        return parts

    def _finish(self, reason: str | None) -> list[Part]:
        if reason is None:
            return []
        self.stop = self._stopped(reason)
        return self._calls.flush()

    def _stopped(self, reason: str) -> Stop:
        if reason == "content_filter":
            raise ContentFiltered(f"{self._card.name}: the provider withheld the answer (content_filter)")
        if reason == "error":
            raise refusal(self._card.name, {"error": {"code": "server_error", "message": "the answer ended in error"}})
        found = _STOPS.get(reason, StopReason.END_TURN)
        # Some servers say stop although they want tools to be used.
        return Stop(StopReason.TOOL_USE if found is StopReason.END_TURN and len(self._calls) else found)

    def _count(self, body: Plain) -> None:
        if spent := body.get("usage"):
            self.usage = Usage(
                input_tokens=count(spent, "prompt_tokens"),
                output_tokens=count(spent, "completion_tokens"),
                cache_read_tokens=count(spent, "prompt_tokens_details", "cached_tokens")
                or count(spent, "prompt_cache_hit_tokens"),
                cache_write_tokens=count(spent, "prompt_tokens_details", "cache_write_tokens"),
                reasoning_tokens=count(spent, "completion_tokens_details", "reasoning_tokens"),
            )


def _words(content: Any) -> str:
    """Content is words, or a list of pieces of which some are words."""
    if isinstance(content, list):
        return "".join(_words(piece.get("text")) for piece in content if isinstance(piece, dict))
    return content if isinstance(content, str) else json.dumps(content) if content else ""

"""Anthropic's Messages."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from postroom.mailbox.contracts import Usage
from postroom.worker.model import effort, sse
from postroom.worker.model.base import Options, Part, Plain, ReasoningPart, Request, Stop, StopReason, TextPart
from postroom.worker.model.errors import ContentFiltered
from postroom.worker.model.refusal import refusal
from postroom.worker.model.schema import closed
from postroom.worker.model.wire import Calls, Card, Names, blocks, cannot_send, count, data_of, without_none

VERSION: Final = "2023-06-01"
# How much may be answered when nobody says; the provider insists on a number, and counts it against the window.
DEFAULT_MAX_TOKENS: Final = 8_192
LONGEST_BY_DEFAULT: Final = 32_768
ROOM_TO_ANSWER: Final = 4_096
LEAST_BUDGET: Final = 1_024
SEAL: Final = "anthropic"
REDACTED: Final = "anthropic-redacted"
_STOPS: Final = {
    "end_turn": StopReason.END_TURN,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    "tool_use": StopReason.TOOL_USE,
    "stop_sequence": StopReason.STOP_SEQUENCE,
}
_UNSAFE_ID: Final = re.compile(r"[^A-Za-z0-9_-]")
_MARK: Final = {"cache_control": {"type": "ephemeral"}}
_BEGINNING: Final = {"type": "text", "text": "(The conversation goes on.)"}


class Messages:
    """How to ask."""

    path = "/v1/messages"

    def headers(self, key: str | None, url: str) -> dict[str, str]:
        """What goes with every request."""
        return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})

    def body(self, request: Request, card: Card, streaming: bool) -> Plain:
        """The request in the provider's words."""
        names = Names(request.tools)
        system, turns = _turns(request.messages, card, names)
        tools = [
            {"name": names.safe(tool.name), "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools
        ]
        if request.options.cache_prompt:
            _mark(system, tools, turns)
        found: Plain = {"model": request.upstream or card.upstream, "messages": turns}
        found |= _options(request.options, card)
        if system:
            found["system"] = system
        if tools:
            found["tools"] = tools
        if streaming:
            found["stream"] = True
        return found

    def heard(self, card: Card, names: Names, new_id: Callable[[], str]) -> "MessageHeard":
        """A fresh pair of ears."""
        return MessageHeard(card, Calls(names, new_id))


def _mark(system: list[Plain], tools: list[Plain], turns: list[Plain]) -> None:
    """Marks what stays the same: tools and instructions come first, then the conversation up to here."""
    for unchanging in (system or tools, turns[-1]["content"] if turns else []):
        # A thought cannot carry a mark.
        places = [block for block in unchanging if block.get("type") not in ("thinking", "redacted_thinking")]
        if places:
            places[-1].update(_MARK)


def _options(options: Options, card: Card) -> Plain:
    version = effort.claude(card.upstream)
    most = options.max_tokens or min(card.limits.max_output_tokens or DEFAULT_MAX_TOKENS, LONGEST_BY_DEFAULT)
    thinking, config = _thinking(options.effort, version)
    if budget := thinking.get("budget_tokens"):
        most = max(most, budget + ROOM_TO_ANSWER)
    found: Plain = {"max_tokens": most}
    if version < effort.NO_SAMPLING and not thinking:
        found |= without_none(temperature=options.temperature, top_p=options.top_p)
    if thinking:
        found["thinking"] = thinking
    if options.output:
        config = config | {"format": {"type": "json_schema", "schema": closed(options.output.schema)}}
    if config:
        found["output_config"] = config
    return found


def _thinking(wanted: str | int | None, version: effort.Version) -> tuple[Plain, Plain]:
    """The thinking and the output_config that stand for an effort: by budget before 4.6, by word since."""
    if wanted is None:
        return {}, {}
    word = effort.word(wanted)
    if version < effort.ADAPTIVE:
        budget = wanted if isinstance(wanted, int) else effort.BUDGETS.get(word, 0)
        return ({"type": "enabled", "budget_tokens": max(budget, LEAST_BUDGET)} if budget > 0 else {}), {}
    if word == "none":
        # Newer ones refuse to be told not to think at all.
        return {}, {"effort": "low"}
    shown = {"display": "summarized"} if version >= effort.NO_SAMPLING else {}
    return {"type": "adaptive", **shown}, {"effort": word}


def _turns(messages: tuple[Plain, ...], card: Card, names: Names) -> tuple[list[Plain], list[Plain]]:
    """The instructions, and the turns between user and assistant, which must alternate."""
    system: list[Plain] = []
    turns: list[Plain] = []
    for message in messages:
        if message["role"] == "system" and not turns:
            system += _said(message, card)
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        content = _content(message, card, names)
        if not content:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
        else:
            turns.append({"role": role, "content": content})
    if turns and turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [dict(_BEGINNING)]})
    return system, turns


def _content(message: Plain, card: Card, names: Names) -> list[Plain]:
    if message["role"] == "tool":
        result: Plain = {"type": "tool_result", "tool_use_id": _id(message["tool_call_id"])}
        if said := _said(message, card):
            result["content"] = said
        if message.get("metadata", {}).get("error"):
            result["is_error"] = True
        return [result]
    calls = [
        {"type": "tool_use", "id": _id(call["id"]), "name": names.safe(call["name"]), "input": _input(call)}
        for call in message.get("tool_calls", ())
    ]
    return _said(message, card) + calls


def _said(message: Plain, card: Card) -> list[Plain]:
    # The provider refuses empty words.
    kept = [block for block in blocks(message) if block["type"] != "text" or block["text"].strip()]
    return [found for block in kept if (found := _block(block, card))]


def _block(block: Plain, card: Card) -> Plain:
    source = block.get("source", {})
    match block["type"]:
        case "text":
            return {"type": "text", "text": block["text"]}
        case "thinking":
            return _thought(block)
        case "image":
            return {"type": "image", "source": _source(source)}
        case "document":
            return {"type": "document", "source": _source(source), **without_none(title=block.get("title"))}
    raise cannot_send(card, block)


def _thought(block: Plain) -> Plain:
    """A thought as it was, when it was this provider's; others are left out."""
    seal, _, signature = (block.get("signature") or "").partition(":")
    if seal == SEAL:
        return {"type": "thinking", "thinking": block["text"], "signature": signature}
    return {"type": "redacted_thinking", "data": signature} if seal == REDACTED else {}


def _source(source: Plain) -> Plain:
    if source["kind"] == "url":
        return {"type": "url", "url": source["url"]}
    return {"type": "base64", "media_type": source["media_type"], "data": source["data"]}


def _id(call_id: str) -> str:
    return _UNSAFE_ID.sub("_", call_id)


def _input(call: Plain) -> Any:
    arguments = call.get("arguments") or {}
    return {"unreadable": arguments} if isinstance(arguments, str) else arguments


class MessageHeard:
    """One answer being heard."""

    def __init__(self, card: Card, calls: Calls) -> None:
        self.stop: Stop | None = None
        self.usage: Usage | None = None
        self.ended = False
        self._card = card
        self._calls = calls
        self._spent: Plain = {}
        self._inputs: dict[int, Plain] = {}
        self._by_type: dict[str, Callable[[Plain], list[Part]]] = {
            "message_start": lambda event: self._count(event["message"].get("usage")),
            "content_block_start": lambda event: self._begun(event["index"], event["content_block"]),
            "content_block_delta": lambda event: self._more(event["index"], event["delta"]),
            "content_block_stop": lambda event: self._closed(event["index"]),
            "message_delta": self._stopped,
            "message_stop": self._over,
            "error": self._refused,
        }

    def hear(self, event: sse.Event) -> list[Part]:
        """The parts an event holds, or the error it stands for."""
        data = data_of(event)
        found = self._by_type.get(data.get("type") or event.name)
        return found(data) if found else []

    def whole(self, body: Plain) -> list[Part]:
        """The parts of an answer that came in one piece."""
        if body.get("error"):
            raise refusal(self._card.name, body)
        parts: list[Part] = []
        for index, block in enumerate(body.get("content") or ()):
            parts += self._begun(index, block)
            if block.get("signature"):
                parts.append(ReasoningPart("", f"{SEAL}:{block['signature']}"))
            parts += self._closed(index)
        self._stopped({"delta": body, "usage": body.get("usage")})
        return parts + self._over(body)

    def _begun(self, index: int, block: Plain) -> list[Part]:
        match block["type"]:
            case "text":
                return [TextPart(block["text"])] if block.get("text") else []
            case "thinking":
                return [ReasoningPart(block["thinking"])] if block.get("thinking") else []
            case "redacted_thinking":
                return [ReasoningPart("", f"{REDACTED}:{block['data']}")]
            case "tool_use":
                self._inputs[index] = block.get("input") or {}
                return self._calls.take(index, block["id"], block["name"])
        return []

    def _more(self, index: int, delta: Plain) -> list[Part]:
        match delta["type"]:
            case "text_delta":
                return [TextPart(delta["text"])]
            case "thinking_delta":
                return [ReasoningPart(delta["thinking"])]
            case "signature_delta":
                return [ReasoningPart("", f"{SEAL}:{delta['signature']}")]
            case "input_json_delta" if index in self._inputs:
                if delta["partial_json"]:
                    self._inputs[index] = {}
                return self._calls.take(index, arguments=delta["partial_json"])
        return []

    def _closed(self, index: int) -> list[Part]:
        # A server that sends no pieces of an input has sent it with the beginning of the call.
        given = self._inputs.pop(index, None)
        return self._calls.take(index, arguments=json.dumps(given)) if given else []

    def _stopped(self, event: Plain) -> list[Part]:
        self._count(event.get("usage"))
        reason = event["delta"].get("stop_reason")
        if reason == "refusal":
            raise ContentFiltered(f"{self._card.name}: the model declined to answer (refusal)")
        if reason:
            self.stop = Stop(_STOPS.get(reason, StopReason.END_TURN))
        return []

    def _over(self, _: Plain) -> list[Part]:
        self.ended = True
        return self._calls.flush()

    def _refused(self, event: Plain) -> list[Part]:
        raise refusal(self._card.name, event)

    def _count(self, spent: Plain | None) -> list[Part]:
        """Counts are told at the beginning and again, grown, at the end."""
        self._spent |= {name: value for name, value in (spent or {}).items() if value is not None}
        read = count(self._spent, "cache_read_input_tokens")
        written = count(self._spent, "cache_creation_input_tokens")
        self.usage = Usage(
            input_tokens=count(self._spent, "input_tokens") + read + written,
            output_tokens=count(self._spent, "output_tokens"),
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=count(self._spent, "output_tokens_details", "thinking_tokens"),
        )
        return []

"""OpenAI's Responses: the conversation is a list of items, and nothing of it is kept at the provider."""

from collections.abc import Callable, Iterator
from typing import Final

from postroom.mailbox.contracts import Usage
from postroom.worker.model import effort, sse
from postroom.worker.model.base import Options, Part, Plain, ReasoningPart, Request, Stop, StopReason, TextPart
from postroom.worker.model.errors import ContentFiltered
from postroom.worker.model.openai_chat import bearer
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

# A sealed thought is its item's id and its encrypted content; other providers' seals begin otherwise.
SEAL: Final = "openai"
_TEXT_TYPES: Final = {"assistant": "output_text"}


class Responses:
    """How to ask."""

    path = "/responses"

    def headers(self, key: str | None, url: str) -> dict[str, str]:
        """What goes with every request."""
        return bearer(key, url)

    def body(self, request: Request, card: Card, streaming: bool) -> Plain:
        """The request in the provider's words."""
        names = Names(request.tools)
        options = request.options
        found: Plain = {
            "model": request.upstream or card.upstream,
            "input": [item for message in request.messages for item in _items(message, card, names)],
            "store": False,
            **_options(options, card),
        }
        if streaming:
            found["stream"] = True
        if request.tools:
            found["tools"] = [
                {
                    "type": "function",
                    "name": names.safe(tool.name),
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in request.tools
            ]
        if card.reasoning or options.effort is not None:
            # Nothing is stored there, so thoughts must come with us; models that do not think refuse the wish.
            found["include"] = ["reasoning.encrypted_content"]
        if options.cache_prompt and request.routing_key:
            found["prompt_cache_key"] = request.routing_key[:64]
        return found

    def heard(self, card: Card, names: Names, new_id: Callable[[], str]) -> "ResponseHeard":
        """A fresh pair of ears."""
        return ResponseHeard(card, Calls(names, new_id))


def _options(options: Options, card: Card) -> Plain:
    found = without_none(temperature=options.temperature, top_p=options.top_p, max_output_tokens=options.max_tokens)
    if options.effort is not None:
        found["reasoning"] = {"effort": effort.openai(card.upstream, options.effort, card.plain)}
    if options.output:
        shape = options.output
        found["text"] = {
            "format": {
                "type": "json_schema",
                "name": shape.name,
                "schema": shape.schema,
                "strict": is_strict(shape.schema),
            }
        }
    return found


def _items(message: Plain, card: Card, names: Names) -> Iterator[Plain]:
    role = message["role"]
    if role == "tool":
        content = [_block(block, card, role) for block in blocks(message)]
        words = all(block["type"] == "input_text" for block in content)
        output = text_of(message) if words else content
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": output}
        return
    yield from (item for block in blocks(message) if block["type"] == "thinking" for item in _thought(block))
    if content := [_block(block, card, role) for block in blocks(message) if block["type"] != "thinking"]:
        yield {"role": role, "content": content}
    for call in message.get("tool_calls", ()):
        yield {
            "type": "function_call",
            "call_id": call["id"],
            "name": names.safe(call["name"]),
            "arguments": arguments_text(call),
        }


def _thought(block: Plain) -> Iterator[Plain]:
    seal, _, rest = (block.get("signature") or "").partition(":")
    item_id, _, sealed = rest.partition(":")
    if seal == SEAL:
        summary = [{"type": "summary_text", "text": block["text"]}] if block["text"] else []
        yield {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": sealed}


def _block(block: Plain, card: Card, role: str) -> Plain:
    source = block.get("source", {})
    match block["type"], source.get("kind"):
        case "text", _:
            return {"type": _TEXT_TYPES.get(role, "input_text"), "text": block["text"]}
        case "image", _:
            return {"type": "input_image", "image_url": data_url(source), "detail": block.get("detail") or "auto"}
        case "document", "url":
            return {"type": "input_file", "file_url": source["url"]}
        case "document", _:
            return {
                "type": "input_file",
                "filename": block.get("title") or "document",
                "file_data": data_url(source),
            }
    raise cannot_send(card, block)


class ResponseHeard:
    """One answer being heard."""

    def __init__(self, card: Card, calls: Calls) -> None:
        self.stop: Stop | None = None
        self.usage: Usage | None = None
        self.ended = False
        self._card = card
        self._calls = calls
        self._written: set[str] = set()
        self._by_type: dict[str, Callable[[Plain], list[Part]]] = {
            "response.output_text.delta": lambda event: [TextPart(event["delta"])],
            "response.refusal.delta": lambda event: [TextPart(event["delta"])],
            "response.reasoning_summary_text.delta": lambda event: [ReasoningPart(event["delta"])],
            "response.reasoning_text.delta": lambda event: [ReasoningPart(event["delta"])],
            "response.output_item.added": lambda event: self._begun(event["item"]),
            "response.function_call_arguments.delta": self._more,
            "response.output_item.done": lambda event: self._done(event["item"]),
            "response.completed": lambda event: self._over(event["response"]),
            "response.incomplete": lambda event: self._over(event["response"]),
            "response.failed": lambda event: self._over(event["response"]),
            "error": self._refused,
        }

    def hear(self, event: sse.Event) -> list[Part]:
        """The parts an event holds, or the error it stands for."""
        if event.data.strip() == b"[DONE]":
            return []
        data = data_of(event)
        if data.get("error") and "type" not in data:
            raise refusal(self._card.name, data)
        found = self._by_type.get(data.get("type") or event.name)
        return found(data) if found else []

    def whole(self, body: Plain) -> list[Part]:
        """The parts of an answer that came in one piece."""
        if body.get("error") and "output" not in body:
            raise refusal(self._card.name, body)
        parts: list[Part] = []
        for item in body.get("output") or ():
            if item["type"] == "message":
                parts += [TextPart(piece.get("text") or piece.get("refusal") or "") for piece in item["content"]]
            elif item["type"] == "reasoning":
                pieces = [*item.get("summary", ()), *(item.get("content") or ())]
                parts += [ReasoningPart(piece["text"]) for piece in pieces]
            parts += self._begun(item) + self._done(item)
        return parts + self._over(body)

    def _begun(self, item: Plain) -> list[Part]:
        if item["type"] != "function_call":
            return []
        return self._calls.take(_key(item), item.get("call_id") or "", item.get("name") or "")

    def _more(self, event: Plain) -> list[Part]:
        key = event.get("item_id") or event.get("output_index")
        self._written.add(str(key))
        return self._calls.take(key, arguments=event["delta"])

    def _done(self, item: Plain) -> list[Part]:
        if item["type"] == "reasoning" and item.get("encrypted_content"):
            return [ReasoningPart("", f"{SEAL}:{item.get('id', '')}:{item['encrypted_content']}")]
        if item["type"] == "function_call" and str(_key(item)) not in self._written:
            # A server that sends no pieces sends the arguments here.
            return self._calls.take(_key(item), item.get("call_id") or "", item.get("name") or "", item["arguments"])
        return []

    def _over(self, response: Plain) -> list[Part]:
        if spent := response.get("usage"):
            self.usage = Usage(
                input_tokens=count(spent, "input_tokens"),
                output_tokens=count(spent, "output_tokens"),
                cache_read_tokens=count(spent, "input_tokens_details", "cached_tokens"),
                cache_write_tokens=count(spent, "input_tokens_details", "cache_write_tokens"),
                reasoning_tokens=count(spent, "output_tokens_details", "reasoning_tokens"),
            )
        if response.get("error") or response.get("status") == "failed":
            raise refusal(self._card.name, response)
        reason = (response.get("incomplete_details") or {}).get("reason")
        if reason == "content_filter":
            raise ContentFiltered(f"{self._card.name}: the provider withheld the answer (content_filter)")
        self.ended = True
        stop = StopReason.TOOL_USE if len(self._calls) else StopReason.END_TURN
        self.stop = Stop(StopReason.MAX_TOKENS if response.get("status") == "incomplete" else stop)
        return self._calls.flush()

    def _refused(self, event: Plain) -> list[Part]:
        # The event's own type is the word error, which says nothing.
        raise refusal(self._card.name, event.get("error") or {**event, "type": None})


def _key(item: Plain) -> str:
    return item.get("id") or item.get("call_id") or ""

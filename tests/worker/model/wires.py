"""Answers in the shapes that providers document: as events of a stream, and in one piece."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Plain = dict[str, Any]
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


@dataclass(frozen=True)
class Call:
    """A tool call, its arguments in pieces."""

    id: str
    name: str
    pieces: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What a model says, whoever provides it."""

    text: tuple[str, ...] = ()
    thoughts: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    truncated: bool = False
    input_tokens: int = 100
    cached_tokens: int = 40
    output_tokens: int = 30
    reasoning_tokens: int = 12
    model: str = "m"


def event(data: Plain, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


# Chat completions -----------------------------------------------------------------------------------------------------


def _chat_finish(answer: Answer) -> str:
    return "length" if answer.truncated else "tool_calls" if answer.calls else "stop"


def _chat_usage(answer: Answer) -> Plain:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": answer.reasoning_tokens, "audio_tokens": 0},
    }


def chat_frames(answer: Answer) -> Iterator[bytes]:
    """A stream of chat.completion.chunk, ended by [DONE]."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1760000000, "model": answer.model}

    def chunk(delta: Plain, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**head, "choices": [choice], "usage": None})

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for thought in answer.thoughts:
        yield chunk({"reasoning_content": thought})
    for text in answer.text:
        yield chunk({"content": text})
    for place, call in enumerate(answer.calls):
        first = {"index": place, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [first]})
        for piece in call.pieces:
            yield chunk({"tool_calls": [{"index": place, "function": {"arguments": piece}}]})
    yield chunk({}, _chat_finish(answer))
    yield event({**head, "choices": [], "usage": _chat_usage(answer)})
    yield b"data: [DONE]\n\n"


def chat_body(answer: Answer) -> Plain:
    """A chat.completion."""
    message: Plain = {"role": "assistant", "content": "".join(answer.text) or None, "refusal": None}
    if answer.thoughts:
        message["reasoning_content"] = "".join(answer.thoughts)
    if answer.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "".join(call.pieces)}}
            for call in answer.calls
        ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1760000000,
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _chat_finish(answer)}],
        "usage": _chat_usage(answer),
    }


# Responses ------------------------------------------------------------------------------------------------------------


def _items(answer: Answer) -> list[Plain]:
    items: list[Plain] = []
    if answer.thoughts:
        summary = [{"type": "summary_text", "text": "".join(answer.thoughts)}]
        items.append({"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "c2VhbGVk"})
    if answer.text:
        content = [{"type": "output_text", "text": "".join(answer.text), "annotations": [], "logprobs": []}]
        items.append({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content})
    for place, call in enumerate(answer.calls):
        items.append(
            {
                "id": f"fc_{place}",
                "type": "function_call",
                "status": "completed",
                "call_id": call.id,
                "name": call.name,
                "arguments": "".join(call.pieces),
            }
        )
    return items


def responses_body(answer: Answer) -> Plain:
    """A response."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1760000000,
        "status": "incomplete" if answer.truncated else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if answer.truncated else None,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": _items(answer),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": answer.input_tokens,
            "input_tokens_details": {"cached_tokens": answer.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": answer.reasoning_tokens},
            "total_tokens": answer.input_tokens + answer.output_tokens,
        },
    }


def responses_frames(answer: Answer) -> Iterator[bytes]:
    """A stream of named events, each with its number; there is no [DONE]."""
    number = iter(range(1_000_000))

    def told(kind: str, **data: Any) -> bytes:
        return event({"type": kind, **data, "sequence_number": next(number)}, kind)

    whole = responses_body(answer)
    empty = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield told("response.created", response=empty)
    yield told("response.in_progress", response=empty)
    for place, item in enumerate(whole["output"]):
        at = {"item_id": item["id"], "output_index": place}
        match item["type"]:
            case "reasoning":
                begun = {**item, "summary": [], "encrypted_content": ""}
                yield told("response.output_item.added", output_index=place, item=begun)
                part: Plain = {"type": "summary_text", "text": ""}
                yield told("response.reasoning_summary_part.added", **at, summary_index=0, part=part)
                for thought in answer.thoughts:
                    yield told("response.reasoning_summary_text.delta", **at, summary_index=0, delta=thought)
                words = "".join(answer.thoughts)
                yield told("response.reasoning_summary_text.done", **at, summary_index=0, text=words)
            case "message":
                begun = {**item, "status": "in_progress", "content": []}
                yield told("response.output_item.added", output_index=place, item=begun)
                part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                yield told("response.content_part.added", **at, content_index=0, part=part)
                for text in answer.text:
                    yield told("response.output_text.delta", **at, content_index=0, delta=text, logprobs=[])
                words = "".join(answer.text)
                yield told("response.output_text.done", **at, content_index=0, text=words, logprobs=[])
            case "function_call":
                call = answer.calls[place - len(whole["output"]) + len(answer.calls)]
                begun = {**item, "status": "in_progress", "arguments": ""}
                yield told("response.output_item.added", output_index=place, item=begun)
                for piece in call.pieces:
                    yield told("response.function_call_arguments.delta", **at, delta=piece)
                done = {"name": call.name, "arguments": item["arguments"]}
                yield told("response.function_call_arguments.done", **at, **done)
        yield told("response.output_item.done", output_index=place, item=item)
    yield told("response.incomplete" if answer.truncated else "response.completed", response=whole)


# Messages -------------------------------------------------------------------------------------------------------------


def _stop_reason(answer: Answer) -> str:
    return "max_tokens" if answer.truncated else "tool_use" if answer.calls else "end_turn"


def messages_body(answer: Answer) -> Plain:
    """A message."""
    content: list[Plain] = []
    if answer.thoughts:
        content.append({"type": "thinking", "thinking": "".join(answer.thoughts), "signature": "c2ln"})
    if answer.text:
        content.append({"type": "text", "text": "".join(answer.text)})
    for call in answer.calls:
        given = json.loads("".join(call.pieces) or "{}")
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": _stop_reason(answer),
        "stop_sequence": None,
        "usage": {
            "input_tokens": answer.input_tokens - answer.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": answer.cached_tokens,
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"thinking_tokens": answer.reasoning_tokens},
        },
    }


def messages_frames(answer: Answer) -> Iterator[bytes]:
    """message_start, the content blocks, message_delta, message_stop; pings in between."""

    def told(kind: str, **data: Any) -> bytes:
        return event({"type": kind, **data}, kind)

    def piece(place: int, **delta: str) -> bytes:
        return told("content_block_delta", index=place, delta=delta)

    usage = {
        "input_tokens": answer.input_tokens - answer.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.cached_tokens,
    }
    begun: Plain = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield told("message_start", message=begun)
    yield told("ping")
    blocks: list[tuple[Plain, list[Plain]]] = []
    if answer.thoughts:
        deltas = [{"type": "thinking_delta", "thinking": thought} for thought in answer.thoughts]
        deltas.append({"type": "signature_delta", "signature": "c2ln"})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if answer.text:
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in answer.text]))
    for call in answer.calls:
        pieces = [{"type": "input_json_delta", "partial_json": part} for part in ("", *call.pieces)]
        blocks.append(({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, pieces))
    for place, (block, deltas) in enumerate(blocks):
        yield told("content_block_start", index=place, content_block=block)
        for delta in deltas:
            yield piece(place, **delta)
        yield told("content_block_stop", index=place)
    details = {"thinking_tokens": answer.reasoning_tokens}
    spent = {"output_tokens": answer.output_tokens, "output_tokens_details": details}
    yield told("message_delta", delta={"stop_reason": _stop_reason(answer), "stop_sequence": None}, usage=spent)
    yield told("message_stop")


FRAMES: dict[str, Callable[[Answer], Iterator[bytes]]] = {
    CHAT: chat_frames,
    RESPONSES: responses_frames,
    MESSAGES: messages_frames,
}
BODIES: dict[str, Callable[[Answer], Plain]] = {CHAT: chat_body, RESPONSES: responses_body, MESSAGES: messages_body}


def frames(path: str, answer: Answer) -> list[bytes]:
    """The answer as the events of a stream."""
    return list(FRAMES[path](answer))


def refused(path: str, code: str, message: str) -> Plain:
    """An error's body."""
    if path == MESSAGES:
        return {"type": "error", "error": {"type": code, "message": message}, "request_id": "req_1"}
    return {"error": {"message": message, "type": code, "param": None, "code": code}}

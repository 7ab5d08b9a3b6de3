"""What is asked, in each provider's words."""

from typing import Any

import pytest

from postroom.worker.model.anthropic import Messages
from postroom.worker.model.base import Limits, Options, OutputSchema, Plain, Request, ToolSpec
from postroom.worker.model.errors import RequestRejected
from postroom.worker.model.openai_chat import ChatCompletions
from postroom.worker.model.openai_responses import Responses
from postroom.worker.model.schema import closed, is_strict
from postroom.worker.model.wire import Card

CARD = Card("test:m", "m", Limits(200_000, 64_000))
PIXEL = {"kind": "base64", "media_type": "image/png", "data": "aGk="}
LINKED = {"kind": "url", "url": "https://example.org/a.png"}


def text(words: str) -> Plain:
    return {"type": "text", "text": words}


CONVERSATION: tuple[Plain, ...] = (
    {"role": "system", "content": [text("Be brief.")]},
    {"role": "user", "content": [text("What is this?"), {"type": "image", "source": PIXEL, "detail": "low"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "text": "mine", "signature": "anthropic:s1"},
            {"type": "thinking", "text": "theirs", "signature": "openai:rs_9:ZZ"},
            {"type": "thinking", "text": "nobody's"},
            text("Let me look."),
        ],
        "tool_calls": [
            {"id": "call:1", "name": "look.up", "arguments": {"a": "ä"}},
            {"id": "call:2", "name": "look.up", "arguments": '{"broken'},
        ],
    },
    {"role": "tool", "tool_call_id": "call:1", "content": [text("found"), {"type": "image", "source": LINKED}]},
    {"role": "tool", "tool_call_id": "call:2", "content": [], "metadata": {"error": True}},
    {"role": "user", "content": [text("And?"), text(" ")]},
)
TOOLS = (ToolSpec("look.up", "Looks up.", {"type": "object", "properties": {"a": {"type": "string"}}}),)


def body(wire: Any, card: Card = CARD, streaming: bool = True, **request: Any) -> Plain:
    found: Plain = wire.body(Request(**{"messages": CONVERSATION, "tools": TOOLS} | request), card, streaming)
    return found


def test_chat_completions() -> None:
    found = body(ChatCompletions(), routing_key="thread 7")
    assert found["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                text("What is this?"),
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {"id": "call:1", "type": "function", "function": {"name": "look_up", "arguments": '{"a": "ä"}'}},
                {"id": "call:2", "type": "function", "function": {"name": "look_up", "arguments": '{"broken'}},
            ],
        },
        {"role": "tool", "tool_call_id": "call:1", "content": "found"},
        {"role": "tool", "tool_call_id": "call:2", "content": ""},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]},
        {"role": "user", "content": "And? "},
    ]
    assert found["tools"][0]["function"]["name"] == "look_up"
    assert found["stream_options"] == {"include_usage": True}
    assert found["prompt_cache_key"] == "thread 7"


def test_servers_that_only_speak_the_language_get_old_words() -> None:
    options = Options(max_tokens=5, effort="max")
    found = body(ChatCompletions(), Card("test:m", "m", plain=True), options=options, routing_key="t")
    assert (found["max_tokens"], found["reasoning_effort"]) == (5, "high")
    assert "prompt_cache_key" not in found
    assert "max_completion_tokens" not in found


def test_responses() -> None:
    found = body(Responses(), options=Options(effort="low", max_tokens=9))
    assert found["input"] == [
        {"role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "low"},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_9",
            "summary": [{"type": "summary_text", "text": "theirs"}],
            "encrypted_content": "ZZ",
        },
        {"role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
        {"type": "function_call", "call_id": "call:1", "name": "look_up", "arguments": '{"a": "ä"}'},
        {"type": "function_call", "call_id": "call:2", "name": "look_up", "arguments": '{"broken'},
        {
            "type": "function_call_output",
            "call_id": "call:1",
            "output": [
                {"type": "input_text", "text": "found"},
                {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
            ],
        },
        {"type": "function_call_output", "call_id": "call:2", "output": ""},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "And?"}, {"type": "input_text", "text": " "}],
        },
    ]
    assert (found["store"], found["max_output_tokens"]) == (False, 9)
    assert found["include"] == ["reasoning.encrypted_content"]
    assert "include" not in body(Responses())


def test_messages() -> None:
    found = body(Messages(), Card("test:m", "claude-sonnet-4-5", Limits(200_000, 64_000)))
    mark = {"cache_control": {"type": "ephemeral"}}
    assert found["system"] == [text("Be brief.") | mark]
    assert found["messages"] == [
        {
            "role": "user",
            "content": [
                text("What is this?"),
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "mine", "signature": "s1"},
                text("Let me look."),
                {"type": "tool_use", "id": "call_1", "name": "look_up", "input": {"a": "ä"}},
                {"type": "tool_use", "id": "call_2", "name": "look_up", "input": {"unreadable": '{"broken'}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call_1",
                    "content": [
                        text("found"),
                        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                    ],
                },
                {"type": "tool_result", "tool_use_id": "call_2", "is_error": True},
                text("And?") | mark,
            ],
        },
    ]
    assert found["max_tokens"] == 32_768
    assert "cache_control" not in str(body(Messages(), options=Options(cache_prompt=False)))


def test_messages_begin_with_the_user_and_hold_late_instructions() -> None:
    said = ({"role": "assistant", "content": "Hello"}, {"role": "system", "content": "Mind the time."})
    turns = body(Messages(), messages=said)["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]


EFFORTS: list[tuple[str, str | int, Plain]] = [
    ("claude-sonnet-4-5", "medium", {"thinking": {"type": "enabled", "budget_tokens": 8192}}),
    ("claude-3-7-sonnet-20250219", 100, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    ("claude-haiku-4-5", "none", {}),
    ("claude-opus-4-6", "max", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
    (
        "claude-opus-5-5",
        2000,
        {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}},
    ),
    ("claude-opus-5-5", "none", {"output_config": {"effort": "low"}}),
]


@pytest.mark.parametrize(("upstream", "effort", "expected"), EFFORTS)
def test_effort_at_anthropic(upstream: str, effort: str | int, expected: Plain) -> None:
    found = body(Messages(), Card("a", upstream), options=Options(effort=effort, temperature=0.5))
    assert {name: found[name] for name in ("thinking", "output_config") if name in found} == expected
    budget = expected.get("thinking", {}).get("budget_tokens", 0)
    assert found["max_tokens"] > budget


@pytest.mark.parametrize(
    ("upstream", "effort", "expected"),
    [
        ("gpt-5", "none", "minimal"),
        ("gpt-5.1", "none", "none"),
        ("o3", "none", "low"),
        ("gpt-5.6-sol", "max", "max"),
        ("gpt-5.4-mini", "max", "xhigh"),
        ("gpt-5", "max", "high"),
        ("gpt-5", 10_000, "medium"),
        ("gpt-5", 100_000, "high"),
        ("gpt-5", "low", "low"),
    ],
)
def test_effort_at_openai(upstream: str, effort: str | int, expected: str) -> None:
    options = Options(effort=effort)
    assert body(ChatCompletions(), Card("o", upstream), options=options)["reasoning_effort"] == expected
    assert body(Responses(), Card("o", upstream), options=options)["reasoning"] == {"effort": expected}


def test_sampling_is_left_out_where_it_is_refused() -> None:
    options = Options(temperature=0.2, top_p=0.9)
    assert body(Messages(), Card("a", "claude-haiku-4-5"), options=options)["temperature"] == 0.2
    assert "temperature" not in body(Messages(), Card("a", "claude-opus-4-7"), options=options)


STRICT = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/b"}}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"b": {"type": "object", "properties": {}, "additionalProperties": False}},
}
LOOSE = {
    "type": "object",
    "properties": {"pattern": {"type": "string", "minLength": 3}, "n": {"type": "object", "properties": {}}},
}


def test_structured_output() -> None:
    assert is_strict(STRICT)
    assert not is_strict(LOOSE)
    for schema, strict in ((STRICT, True), (LOOSE, False)):
        options = Options(output=OutputSchema("answer", schema))
        shape = {"name": "answer", "schema": schema, "strict": strict}
        expected = {"type": "json_schema", "json_schema": shape}
        assert body(ChatCompletions(), options=options)["response_format"] == expected
        assert body(Responses(), options=options)["text"]["format"] == {"type": "json_schema", **shape}
        asked = body(Messages(), options=options)["output_config"]["format"]
        assert asked == {"type": "json_schema", "schema": closed(schema)}


def test_a_closed_schema_keeps_names_and_drops_constraints() -> None:
    assert closed(LOOSE) == {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "n": {"type": "object", "properties": {}, "additionalProperties": False},
        },
        "additionalProperties": False,
    }


def test_what_a_provider_cannot_take_is_refused_in_one_line() -> None:
    sound = {"type": "audio", "source": {"kind": "base64", "media_type": "audio/wav", "data": "aGk="}}
    said = ({"role": "user", "content": [sound]},)
    with pytest.raises(RequestRejected, match="test:m: this provider takes no audio"):
        body(Messages(), messages=said)
    assert body(ChatCompletions(), messages=said)["messages"][0]["content"][0]["type"] == "input_audio"


def test_documents() -> None:
    pdf = {
        "type": "document",
        "title": "a.pdf",
        "source": {"kind": "base64", "media_type": "application/pdf", "data": "x"},
    }
    said = ({"role": "user", "content": [pdf]},)
    (chat,) = body(ChatCompletions(), messages=said)["messages"][0]["content"]
    assert chat["file"] == {"filename": "a.pdf", "file_data": "data:application/pdf;base64,x"}
    (item,) = body(Responses(), messages=said)["input"][0]["content"]
    assert item == {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,x"}
    (block,) = body(Messages(), messages=said, options=Options(cache_prompt=False))["messages"][0]["content"]
    assert (block["type"], block["title"]) == ("document", "a.pdf")


def test_another_name_at_the_provider() -> None:
    for wire in (ChatCompletions(), Responses(), Messages()):
        assert body(wire)["model"] == "m"
        assert body(wire, upstream="n")["model"] == "n"

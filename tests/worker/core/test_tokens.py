"""The estimate: by kind of block, aware of wide scripts, and worked out once for each message."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.worker.core import tokens
from postroom.worker.model.base import ToolSpec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("word", 1),
        ("words", 2),
        ("漢字漢", 2),
        ("漢字漢字", 3),
        ("한글과", 2),
        ("あいう", 2),
        ("abcd漢字漢", 3),
    ],
)
def test_words(text: str, expected: int) -> None:
    assert tokens.of_text(text) == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "text", "text": "x" * 40}, 10),
        ({"type": "thinking", "text": "x" * 40, "signature": "s" * 80}, 30),
        ({"type": "image", "source": {"kind": "url", "url": "https://example.org/x"}}, tokens.PICTURE),
        ({"type": "image", "source": {"kind": "base64", "data": "A" * 4_000_000}}, tokens.PICTURE),
        ({"type": "image", "detail": "low", "source": {"kind": "url", "url": "u"}}, tokens.SMALL_PICTURE),
        ({"type": "document", "source": {"kind": "url", "url": "u"}}, tokens.FILE),
        (
            {
                "type": "document",
                "source": {"kind": "base64", "media_type": "application/pdf", "data": "A" * 4_000_000},
            },
            3_000_000 // 25,
        ),
        ({"type": "document", "source": {"kind": "base64", "media_type": "text/csv", "data": "A" * 1600}}, 300),
        ({"type": "audio", "source": {"kind": "base64", "media_type": "audio/mp3", "data": "A" * 4_000_000}}, 1875),
        ({"type": "hologram", "data": "x"}, 9),
    ],
)
def test_blocks(block: dict[str, Any], expected: int) -> None:
    assert tokens.of_message({"role": "user", "content": [block]}) == tokens.MESSAGE + expected


def test_calls_and_the_id_of_an_answer_count() -> None:
    arguments = {"query": "x" * 400}
    asked = {"role": "assistant", "tool_calls": [{"id": "call", "name": "look", "arguments": arguments}]}
    unparsed = {"role": "assistant", "tool_calls": [{"id": "call", "name": "look", "arguments": json.dumps(arguments)}]}
    assert tokens.of_message(asked) == tokens.of_message(unparsed) == tokens.MESSAGE + 1 + 1 + -(-(400 + 13) // 4)
    assert tokens.of_message({"role": "tool", "tool_call_id": "call"}) == tokens.MESSAGE + 1


def test_a_tool_counts_with_its_schema() -> None:
    small = ToolSpec("look", "Looks.", {"type": "object"})
    large = ToolSpec("look", "Looks.", {"type": "object", "properties": {"x" * 400: {"type": "string"}}})
    assert tokens.of_tool(small) == tokens.TOOL + 1 + 2 + 5
    assert tokens.of_tool(large) > tokens.of_tool(small) + 100


@given(st.text(), st.text())
def test_more_words_never_cost_less(first: str, second: str) -> None:
    assert tokens.of_text(first + second) >= max(tokens.of_text(first), tokens.of_text(second))
    assert tokens.of_text(first + second) <= tokens.of_text(first) + tokens.of_text(second)


def test_a_memo_works_once_for_each_object_and_does_not_grow_without_end() -> None:
    asked: list[str] = []

    def work(message: dict[str, str]) -> str:
        asked.append(message["name"])
        return message["name"].upper()

    memo = tokens.Memo(work, most=2)
    first, second, third = {"name": "a"}, {"name": "a"}, {"name": "c"}
    assert [memo(first), memo(first), memo(second), memo(second)] == ["A"] * 4
    assert asked == ["a", "a"]
    assert memo(third) == "C"  # the third makes it forget
    assert memo(first) == "A"
    assert asked == ["a", "a", "c", "a"]

"""Answers of every provider, streamed and not, cut anywhere: the same parts come out."""

import asyncio
import json

import pytest

from postroom.mailbox.contracts import Usage
from postroom.worker.model.base import CallPart, Part, ReasoningPart, Request, Stop, StopReason, TextPart, ToolSpec
from postroom.worker.model.reply import whole
from tests.worker.model import wires
from tests.worker.model.conftest import NAMES, Make, fail, hear, question
from tests.worker.model.provider import Provider, Reaction
from tests.worker.model.wires import CHAT, MESSAGES, RESPONSES, Answer, Call

FULL = Answer(
    text=("Grüße, ", "世", "界 🎈", "\n\nNext line."),
    thoughts=("Let me ", "see… 思"),
    calls=(
        Call("call_a", "lookup", ('{"city": "Mün', 'chen", "days"', ": 3}")),
        Call("call_b", "lookup", ("{", "}")),
        Call("call_c", "now", ()),
    ),
)
SEALS = {RESPONSES: "openai:rs_1:c2VhbGVk", MESSAGES: "anthropic:c2ln"}
EACH = pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])


def check(path: str, parts: list[Part]) -> None:
    reply = whole(parts)
    assert reply.text == "Grüße, 世界 🎈\n\nNext line."
    thought = {"type": "thinking", "text": "Let me see… 思"}
    assert reply.thoughts == ({**thought, "signature": SEALS[path]} if path in SEALS else thought,)
    assert [(call.id, call.name, call.parsed) for call in reply.calls] == [
        ("call_a", "lookup", {"city": "München", "days": 3}),
        ("call_b", "lookup", {}),
        ("call_c", "now", {}),
    ]
    assert reply.stop is StopReason.TOOL_USE
    assert reply.usage == Usage(input_tokens=100, cache_read_tokens=40, output_tokens=30, reasoning_tokens=12)
    assert isinstance(parts[-1], Stop)
    assert [part.name for part in parts if isinstance(part, CallPart) and part.name] == ["lookup", "lookup", "now"]


@EACH
@pytest.mark.parametrize("cut", [0, 1, 7])
def test_a_streamed_answer_however_it_is_cut(provider: Provider, models: Make, path: str, cut: int) -> None:
    provider.react(Reaction(FULL, cut=cut))
    check(path, hear(models(), NAMES[path]))
    assert provider.asked[0].body["stream"] is True


@EACH
def test_line_ends_comments_and_keep_alives(provider: Provider, models: Make, path: str) -> None:
    frames = [frame.replace(b"\n", b"\r\n") for frame in wires.frames(path, FULL)]
    noisy = [piece for frame in frames for piece in (b": keep-alive\r\n\r\n", frame, b"\r\n")]
    provider.react(Reaction(frames=noisy, cut=3))
    check(path, hear(models(), NAMES[path]))


@EACH
def test_an_answer_in_one_piece(provider: Provider, models: Make, path: str) -> None:
    provider.react(FULL)
    check(path, hear(models(models={NAMES[path]: {"streaming": False}}), NAMES[path]))
    assert "stream" not in provider.asked[0].body


@EACH
def test_a_server_that_does_not_stream_although_asked_to(provider: Provider, models: Make, path: str) -> None:
    provider.react(Reaction(body=wires.BODIES[path](FULL)))
    check(path, hear(models(), NAMES[path]))


@EACH
def test_a_truncated_answer_says_so(provider: Provider, models: Make, path: str) -> None:
    provider.react(Answer(("Once upon",), truncated=True))
    assert hear(models(), NAMES[path])[-1] == Stop(StopReason.MAX_TOKENS)


@EACH
def test_huge_arguments_arrive_whole(provider: Provider, models: Make, path: str) -> None:
    value = json.dumps({"text": "é🎈" * 400_000}, ensure_ascii=False)
    pieces = tuple(value[start : start + 10_000] for start in range(0, len(value), 10_000))
    provider.react(Answer(calls=(Call("c", "write", pieces),)))
    assert whole(hear(models(), NAMES[path])).calls[0].arguments == value


@EACH
def test_malformed_arguments_are_kept_as_text(provider: Provider, models: Make, path: str) -> None:
    provider.react(Answer(calls=(Call("c", "write", ('{"a": ', "oops")),)))
    (call,) = whole(hear(models(), NAMES[path])).calls
    assert (call.parsed, call.as_dict()["arguments"]) == (None, '{"a": oops')


@EACH
def test_names_that_providers_refuse_are_changed_and_changed_back(provider: Provider, models: Make, path: str) -> None:
    tools = tuple(ToolSpec(name, "", {"type": "object"}) for name in ("shop.look/up", "shop:look:up"))
    provider.react(Answer(calls=(Call("a", "shop_look_up", ()), Call("b", "shop_look_up_2", ()))))
    reply = whole(hear(models(), NAMES[path], question(tools=tools)))
    assert [call.name for call in reply.calls] == ["shop.look/up", "shop:look:up"]


def chunk(**delta: object) -> bytes:
    return wires.event({"id": "x", "choices": [{"index": 0, "delta": delta}]})


def call(arguments: object = "", name: str = "", **more: object) -> dict[str, object]:
    return {**more, "function": {"arguments": arguments} | ({"name": name} if name else {})}


DONE = [wires.event({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}), b"data: [DONE]\n\n"]
ODD_CALLS = {
    "no index, told apart by id": [
        [call('{"a"', id="1", name="f")],
        [call(":1}", id="1")],
        [call("{}", id="2", name="g")],
    ],
    "no index and no id, by name and completeness": [[call('{"a"', name="f")], [call(":1}")], [call("{}", name="g")]],
    "no index, no id, the name every time": [[call('{"a"', name="f")], [call(":1}", name="f")], [call("{}", name="g")]],
    "index 0 for all of them": [
        [call('{"a"', index=0, id="1", name="f")],
        [call(":1}", index=0)],
        [call("{}", index=0, id="2", name="g")],
    ],
    "interleaved": [
        [call("", index=0, id="1", name="f"), call("", index=1, id="2", name="g")],
        [call("{", index=1), call('{"a"', index=0)],
        [call(":1}", index=0), call("}", index=1)],
    ],
    "the name after the arguments": [
        [call('{"a"', index=0, id="1")],
        [call(":1}", index=0, name="f")],
        [call("{}", index=1, id="2", name="g")],
    ],
    "arguments as an object": [[call({"a": 1}, index=0, name="f")], [call({}, index=1, name="g")]],
}


@pytest.mark.parametrize("pieces", ODD_CALLS.values(), ids=list(ODD_CALLS))
def test_calls_are_told_apart(provider: Provider, models: Make, pieces: list[list[object]]) -> None:
    provider.react(Reaction(frames=[*(chunk(tool_calls=each) for each in pieces), *DONE]))
    reply = whole(hear(models(), "openai:m"))
    assert [(each.name, each.parsed) for each in reply.calls] == [("f", {"a": 1}), ("g", {})]
    assert len({each.id for each in reply.calls}) == 2
    assert reply.stop is StopReason.TOOL_USE


def test_words_around_a_call_are_all_kept_in_order(provider: Provider, models: Make) -> None:
    frames = [
        chunk(content="before "),
        chunk(tool_calls=[call("{}", index=0, id="1", name="f")]),
        chunk(content="after"),
        chunk(reasoning="hm"),
    ]
    provider.react(Reaction(frames=[*frames, *DONE]))
    parts = hear(models(), "openai:m")
    assert parts[:4] == [TextPart("before "), CallPart("1", "f", "{}"), TextPart("after"), ReasoningPart("hm")]


def test_reasoning_between_words_keeps_its_place(provider: Provider, models: Make) -> None:
    def block(place: int, start: dict[str, str], *deltas: dict[str, str]) -> list[bytes]:
        return [
            wires.event({"type": "content_block_start", "index": place, "content_block": start}),
            *(wires.event({"type": "content_block_delta", "index": place, "delta": delta}) for delta in deltas),
            wires.event({"type": "content_block_stop", "index": place}),
        ]

    thought = {"type": "thinking", "thinking": ""}
    frames = [
        *block(0, thought, {"type": "thinking_delta", "thinking": "a"}, {"type": "signature_delta", "signature": "1"}),
        *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "words"}),
        *block(2, {"type": "redacted_thinking", "data": "xyz"}),
        *block(3, thought, {"type": "thinking_delta", "thinking": "b"}, {"type": "signature_delta", "signature": "2"}),
        wires.event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
        wires.event({"type": "message_stop"}),
    ]
    provider.react(Reaction(frames=frames))
    message = whole(hear(models(), "anthropic:m")).as_message()
    assert message["content"] == [
        {"type": "thinking", "text": "a", "signature": "anthropic:1"},
        {"type": "text", "text": "words"},
        {"type": "thinking", "text": "", "signature": "anthropic-redacted:xyz"},
        {"type": "thinking", "text": "b", "signature": "anthropic:2"},
    ]
    user = question().messages[0]
    request = Request((user, message, user))
    hear(models(), "anthropic:m", request)
    assert [block["type"] for block in provider.asked[-1].body["messages"][1]["content"]] == [
        "thinking",
        "text",
        "redacted_thinking",
        "thinking",
    ]


def test_usage_without_choices_and_empty_first_chunks(provider: Provider, models: Make) -> None:
    frames = [
        wires.event({"choices": [], "prompt_filter_results": []}),
        chunk(content="hi"),
        wires.event({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
        wires.event({"choices": None, "usage": {"prompt_tokens": 3, "completion_tokens": 1}}),
    ]
    provider.react(Reaction(frames=frames))
    reply = whole(hear(models(), "openai:m"))
    assert (reply.text, reply.usage.input_tokens, reply.stop) == ("hi", 3, StopReason.END_TURN)


@EACH
def test_content_that_is_withheld_is_an_error(provider: Provider, models: Make, path: str) -> None:
    withheld = {
        CHAT: [wires.event({"choices": [{"delta": {}, "finish_reason": "content_filter"}]})],
        RESPONSES: [
            wires.event(
                {
                    "type": "response.incomplete",
                    "response": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
                }
            )
        ],
        MESSAGES: [wires.event({"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {}})],
    }
    provider.react(Reaction(frames=withheld[path]))
    assert fail(models(), NAMES[path]).code == "model_content_filtered"


def test_prices_become_costs(provider: Provider, models: Make) -> None:
    prices = {"input_price": 2.0, "cached_input_price": 0.5, "output_price": 10.0}
    provider.react(FULL)
    usage = whole(hear(models(models={"openai:m": prices}), "openai:m")).usage
    assert usage.cost_usd == pytest.approx((60 * 2.0 + 40 * 0.5 + 30 * 10.0) / 1e6)


def test_a_connection_serves_one_answer_after_the_other(provider: Provider, models: Make) -> None:
    made = models()

    async def ask() -> None:
        for _ in range(3):
            async for part in made.resolve("openai:m").stream(question()):
                if isinstance(part, Stop):
                    break
        await made.close()

    asyncio.run(ask())
    assert provider.connections == 1

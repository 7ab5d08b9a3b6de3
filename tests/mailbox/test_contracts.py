"""The words that travel: checked at the edge, frozen, and the same after a round trip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from postroom.mailbox import codec, log
from postroom.mailbox.contracts import (
    Audio,
    Base64Source,
    Contract,
    Document,
    Image,
    Message,
    Role,
    RunRequest,
    Text,
    Thinking,
    ToolCall,
    UrlSource,
    Usage,
    Visibility,
    message,
    parse,
)
from postroom.mailbox.errors import InvalidInput

words = st.text(max_size=30)
sources = st.builds(UrlSource, url=st.just("https://example.org/x")) | st.builds(
    Base64Source, media_type=st.just("image/png"), data=words
)
blocks = st.one_of(
    st.builds(Text, text=words),
    st.builds(Image, source=sources, detail=st.sampled_from([None, "low", "high"])),
    st.builds(Document, source=sources, title=st.none() | words),
    st.builds(Audio, source=sources),
    st.builds(Thinking, text=words, signature=st.none() | words),
)
calls = st.builds(
    ToolCall,
    id=st.text("abc", min_size=1),
    name=st.just("pay"),
    arguments=st.dictionaries(words, st.integers(-5, 5)) | words,
)
messages = st.one_of(
    st.builds(Message, role=st.sampled_from([Role.USER, Role.SYSTEM]), content=st.lists(blocks).map(tuple)),
    st.builds(
        Message,
        role=st.just(Role.ASSISTANT),
        content=st.lists(blocks).map(tuple),
        tool_calls=st.lists(calls).map(tuple),
        visibility=st.sampled_from(list(Visibility)),
    ),
    st.builds(
        Message,
        role=st.just(Role.TOOL),
        content=st.lists(blocks).map(tuple),
        tool_call_id=st.just("c1"),
        id=st.just("m 1"),
    ),
)


@given(messages)
def test_a_message_survives_the_log(given_message: Message) -> None:
    flat = [part if isinstance(part, bytes) else str(part).encode() for part in log.fields(given_message.as_dict(), 3)]
    entry = log.entry((b"7-0", [b"at", b"5", b"run", b"r1", *flat]))
    assert parse(Message, entry.message) == given_message
    assert (entry.seq, entry.at, entry.run, entry.step) == (7, 5, "r1", 3)


def test_plain_words_are_plain_text_in_redis() -> None:
    assert log.fields(message("user", "hello").as_dict(), 1) == ["role", "user", "step", 1, "text", "hello"]


@pytest.mark.parametrize(
    "bad",
    [
        {"role": "tool"},
        {"role": "user", "tool_call_id": "c"},
        {"role": "user", "tool_calls": [{"id": "c", "name": "x"}]},
        {"role": "nobody"},
        {"role": "user", "content": [{"type": "video"}]},
        {"role": "user", "content": [{"type": "image", "source": {"kind": "file"}}]},
        {"role": "user", "surprise": 1},
    ],
)
def test_malformed_messages_are_told_in_one_line(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(Message, bad)
    assert str(caught.value).startswith("Message")
    assert "\n" not in str(caught.value)


def test_contracts_are_frozen() -> None:
    with pytest.raises(ValidationError):
        message("user", "hi").role = Role.TOOL  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "words_of_error"),
    [
        ({"start_at": 5, "on_busy": "interrupt"}, "only be enqueued"),
        ({"on_busy": "steer", "messages": ()}, "at least one message"),
        ({"priority": 256}, "priority"),
        ({"webhook": "ftp://x"}, "webhook"),
        ({"start_at": -1}, "start_at"),
    ],
)
def test_impossible_requests_are_refused(change: dict[str, object], words_of_error: str) -> None:
    with pytest.raises(InvalidInput, match=words_of_error):
        parse(RunRequest, {"run_id": "r", "thread_id": "t", "messages": (message("user", "x"),)} | change)


def test_usage_adds_up() -> None:
    total = Usage(input_tokens=1, cost_usd=0.5) + Usage(input_tokens=2, output_tokens=3)
    assert total == Usage(input_tokens=3, output_tokens=3, cost_usd=0.5)


def test_every_contract_has_a_docstring_and_is_codec_ready() -> None:
    def tree(kind: type[Contract]) -> list[type[Contract]]:
        children = [child for child in kind.__subclasses__() if child.__module__.startswith("postroom.")]
        return [kind, *(each for child in children for each in tree(child))]

    assert all(kind.__doc__ for kind in tree(Contract))
    assert codec.decode(codec.encode(message("user", "hi").as_dict())) == message("user", "hi").as_dict()

"""Server-sent events out of bytes, however those are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.worker.model import sse
from postroom.worker.model.sse import Decoder, Event

STREAM = (
    '\ufeffevent: first\ndata: {"text": "Grüße, 世界 🎈"}\n\n: keep-alive\n\n\ndata: two\ndata:lines\n\n'
    "id: 7\nretry: 10\nevent: odd\ndata\n\nevent: never\n\ndata: [DONE]\n\n"
).encode()
EVENTS = [
    Event("first", '{"text": "Grüße, 世界 🎈"}'.encode()),
    Event("", b"two\nlines"),
    Event("odd", b""),
    Event("", b"[DONE]"),
]


def decoded(pieces: list[bytes]) -> list[Event]:
    decoder = Decoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.finish()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_cut_gives_the_same_events(end: bytes) -> None:
    stream = STREAM.replace(b"\n", end)
    assert decoded([stream]) == EVENTS
    assert decoded([bytes([byte]) for byte in stream]) == EVENTS
    for cut in range(len(stream)):
        assert decoded([stream[:cut], stream[cut:]]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM))))
def test_many_cuts_at_once(cuts: list[int]) -> None:
    stream = STREAM.replace(b"\n", b"\r\n")
    places = [0, *sorted(cuts), len(stream)]
    assert decoded([stream[a:b] for a, b in itertools.pairwise(places)]) == EVENTS


def test_an_event_is_given_as_soon_as_it_is_complete() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: a\r\n\r") == [Event("", b"a")]
    assert decoder.feed(b"\ndata: b\r\n\r\n") == [Event("", b"b")]


def test_a_last_event_without_its_empty_line_counts() -> None:
    assert decoded([b"data: [DONE]"]) == [Event("", b"[DONE]")]


def test_an_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MOST_BYTES", 1000)
    decoder = Decoder()
    decoder.feed(b"data: " + b"x" * 900)
    with pytest.raises(sse.EventTooLarge):
        decoder.feed(b"x" * 200)

"""The union of events: spec names, lossless through the journal, unknown types kept."""

import pytest

from postroom.mailbox import events, journal

SPEC_NAMES = [
    "run_start",
    "run_finish",
    "step_start",
    "step_end",
    "text_delta",
    "reasoning_delta",
    "reasoning_encrypted_value",
    "tool_call_start",
    "tool_call_delta",
    "tool_call_ready",
    "tool_call_stream_delta",
    "tool_call_done",
    "tool_call_resumed",
    "tool_call_cancel",
    "stream_reset",
    "inference_complete",
    "state_snapshot",
    "state_delta",
    "messages_snapshot",
    "activity_snapshot",
    "activity_delta",
    "error",
]
OUR_NAMES = ["run_waiting", "run_requeued", "cancel_requested", "decision_received", "ticket_expired", "mail_received"]
OUR_NAMES += ["child_event"]

SAMPLES: list[dict[str, object]] = [
    {"type": "text_delta", "delta": "", "step": 2},
    {"type": "text_delta", "delta": "né\n\x00", "step": 2},
    {"type": "tool_call_done", "id": "c", "outcome": "failed", "result": {"a": [1, None]}, "step": 1},
    {"type": "tool_call_ready", "id": "c", "name": "pay", "arguments": "5"},
    {"type": "run_finish", "termination": "stopped", "code": "max_rounds", "result": "5"},
    {"type": "run_waiting", "reason": "approval", "wake": 5, "tickets": [{"id": "k", "call_id": "c", "tool": "pay"}]},
    {"type": "activity_snapshot", "message_id": "m", "activity_type": "plan", "content": {}, "replace": False},
    {"type": "inference_complete", "model": "m", "usage": {"input_tokens": 3}, "duration_ms": 12},
]


def through_journal(event: dict[str, object]) -> dict[str, object]:
    flat = [part if isinstance(part, bytes) else str(part).encode() for part in journal.fields(event)]
    (entry,) = journal.entries([(b"1-0", [b"at", b"9", *flat])])
    return entry.event


def test_the_union_has_the_names_clients_know() -> None:
    assert set(events.TYPES) == set(SPEC_NAMES) | set(OUR_NAMES)


@pytest.mark.parametrize("event", SAMPLES)
def test_events_survive_the_journal(event: dict[str, object]) -> None:
    parsed = events.parse_event(through_journal(event))
    assert type(parsed) is events.TYPES[str(event["type"])]
    assert parsed == events.parse_event(event)


def test_an_unknown_type_is_kept_whole() -> None:
    event = {"type": "hologram", "size": 3, "words": "x"}
    parsed = events.parse_event(through_journal(event))
    assert isinstance(parsed, events.UnknownEvent)
    assert parsed.model_dump() == {**event, "step": 0}


def test_a_known_type_of_a_newer_shape_is_kept_too() -> None:
    assert events.parse_event({"type": "text_delta", "pieces": ["a"]}).model_dump()["pieces"] == ["a"]
    assert events.parse_event({"type": "text_delta", "delta": "a", "lang": "fr"}) == events.TextDelta(delta="a")

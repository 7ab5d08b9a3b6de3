"""What the log and the events show of a call's outcome."""

import json
from dataclasses import replace
from typing import Any

from postroom.worker.core.calls import Outcome
from postroom.worker.core.limits import cut

Plain = dict[str, Any]


def result_text(outcome: Outcome) -> str:
    """What the model reads: the message if there is one, else the data; plain words are not quoted."""
    if outcome.message is not None:
        return outcome.message
    if isinstance(outcome.data, str):
        return outcome.data
    return json.dumps(outcome.data, ensure_ascii=False, separators=(",", ":"))


def result_message(call_id: str, outcome: Outcome) -> Plain:
    """The one visible result of a call."""
    message: Plain = {
        "role": "tool",
        "tool_call_id": call_id,
        "content": [{"type": "text", "text": result_text(outcome)}],
    }
    metadata = {"error": True, **outcome.metadata} if outcome.failed else outcome.metadata
    if metadata:
        message["metadata"] = metadata
    return message


def result_event(outcome: Outcome) -> Any:
    """What a follower of the run gets to see."""
    if outcome.failed:
        return {"error": outcome.message} if outcome.message else outcome.data
    if outcome.metadata:
        return {"data": outcome.data, "metadata": outcome.metadata}
    return outcome.data


def limited(outcome: Outcome, limit: int) -> Outcome:
    """The outcome with no more text than the model should read; all of it is kept beside."""
    text = result_text(outcome)
    shown, was_cut = cut(text, limit)
    if not was_cut:
        return outcome
    return replace(outcome, message=shown, metadata={**outcome.metadata, "cut": len(text)}, full=text)

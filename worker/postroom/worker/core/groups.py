"""What only makes sense together: an assistant's calls and all their results. Everything else stands alone.

Providers refuse a request in which a call has no result, a result no call, or something stands between them.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

Plain = dict[str, Any]
Group = tuple[Plain, ...]
INTERRUPTED = "[Tool execution was interrupted]"


def groups(messages: Sequence[Plain]) -> list[Group]:
    """The messages in groups: each call has one result, in the order of the calls; results of no call are left out."""
    results = _results(messages)
    return [
        (message, *(results.get((place, call["id"])) or _interrupted(call["id"]) for call in _calls(message)))
        for place, message in enumerate(messages)
        if message["role"] != "tool"
    ]


def paired(messages: Sequence[Plain]) -> tuple[Plain, ...]:
    """The messages as `groups` would have them; those that are so already, which is usual, are not touched."""
    return tuple(messages) if in_order(messages) else tuple(chain.from_iterable(groups(messages)))


def pinned(message: Plain) -> bool:
    """Whether somebody wants it never to be left out."""
    return bool(message.get("metadata") and message["metadata"].get("pinned"))


def _calls(message: Plain) -> Sequence[Plain]:
    return message.get("tool_calls") or ()


def _results(messages: Sequence[Plain]) -> dict[tuple[int, str], Plain]:
    """The last result of each call, by the place of who asked: providers use an id again in later steps."""
    asked: dict[str, int] = {}
    results: dict[tuple[int, str], Plain] = {}
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] in asked:
                results[asked[message["tool_call_id"]], message["tool_call_id"]] = message
        else:
            asked |= {call["id"]: place for call in _calls(message)}
    return results


def _interrupted(call_id: str) -> Plain:
    return {"role": "tool", "tool_call_id": call_id, "content": [{"type": "text", "text": INTERRUPTED}]}


def in_order(messages: Sequence[Plain]) -> bool:
    """Whether each call is followed by its results and nothing else."""
    expected: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if not expected or expected.pop() != message["tool_call_id"]:
                return False
        elif expected:
            return False
        elif calls := message.get("tool_calls"):
            expected = [call["id"] for call in reversed(calls)]
    return not expected

"""Grants: what a person has allowed for good on a thread, by action key. Commits add them, `revoke` takes them back."""

from dataclasses import dataclass
from typing import Any

from postroom.mailbox import codec, keys
from postroom.mailbox.ops import Fields, Op, hash_fields, on_thread

PREFIX = "grant:"


@dataclass(frozen=True, slots=True)
class Grant:
    """Who allowed what, in which decision, and when."""

    action_key: str
    tool: str
    by: str
    decision: str
    at: int


def grants(thread_id: str) -> Op[list[Grant]]:
    """All grants of a thread, by key."""
    return Op(("HGETALL", keys.thread_state(thread_id)), lambda reply: _found(hash_fields(reply)))


def revoke(thread_id: str, action_key: str, now: int | None = None) -> Op[bool]:
    """Takes a grant back; False if there was none."""
    return on_thread("revoke", thread_id, now, (action_key,), bool)


def _found(fields: Fields) -> list[Grant]:
    bodies: dict[str, dict[str, Any]] = {
        name.removeprefix(PREFIX): codec.decode(value) for name, value in fields.items() if name.startswith(PREFIX)
    }
    return [
        Grant(key, body.get("tool", ""), body.get("by", ""), body.get("decision", ""), body.get("at", 0))
        for key, body in sorted(bodies.items())
    ]

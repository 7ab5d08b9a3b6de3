"""Plans about profiles: what is remembered of users, agents and threads, for tools, plugins and other services."""

from typing import Any

from postroom.dispatcher.plans import Plan, one
from postroom.mailbox import profile
from postroom.mailbox.settings import Settings


def get_profile(settings: Settings, /, owner: str, key: str) -> Plan[Any]:
    """What is remembered of an owner (`user::ann`, `agent_type::support`, `thread::t1`, `global`, …) under a key."""
    return (yield from one(profile.get(owner, key)))


def list_profile(settings: Settings, /, owner: str) -> Plan[dict[str, Any]]:
    """Everything that is remembered of an owner."""
    return (yield from one(profile.get_all(owner)))


def put_profile(settings: Settings, /, owner: str, key: str, value: Any) -> Plan[bool]:
    """Remembers a value; the last writer wins. Whether the key is new."""
    return (yield from one(profile.put(owner, key, value, settings.max_body_bytes)))


def forget_profile(settings: Settings, /, owner: str, key: str | None = None) -> Plan[bool]:
    """Forgets a key, or everything that is remembered of an owner."""
    return (yield from one(profile.forget(owner, key)))

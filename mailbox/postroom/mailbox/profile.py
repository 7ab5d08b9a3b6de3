"""Profiles: what is remembered of somebody across threads. One hash per owner, plain data, the last writer wins."""

from typing import Any, Final

from postroom.mailbox import codec, keys
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.ops import Op, hash_fields

# Whose it may be: everybody's, the installation's own, or that of one user, agent, kind of agent, thread or family.
ALONE: Final = frozenset({"global", "system"})
KINDS: Final = frozenset({"user", "agent", "agent_type", "thread", "parent_thread"})


def check_owner(owner: str) -> str:
    """The owner, if it has one of the forms there are."""
    kind, separator, name = owner.partition("::")
    if owner in ALONE or (separator and kind in KINDS and name):
        return keys.check_id(owner, "owner")
    forms = ", ".join([*sorted(ALONE), *(f"{each}::<id>" for each in sorted(KINDS))])
    raise InvalidInput(f"owner {owner[:64]!r} has none of the forms {forms}")


def get(owner: str, key: str) -> Op[Any]:
    """What is remembered under a key, or None."""
    command = ("HGET", keys.profile(check_owner(owner)), keys.check_id(key, "key"))
    return Op(command, lambda reply: None if reply is None else codec.decode(reply))


def get_all(owner: str) -> Op[dict[str, Any]]:
    """Everything that is remembered of an owner."""

    def decoded(reply: Any) -> dict[str, Any]:
        return {name: codec.decode(value) for name, value in hash_fields(reply).items()}

    return Op(("HGETALL", keys.profile(check_owner(owner))), decoded)


def put(owner: str, key: str, value: Any, limit: int = codec.MAX_BYTES) -> Op[bool]:
    """Remembers a value, in place of an older one; whether it is a new key."""
    place, name = keys.profile(check_owner(owner)), keys.check_id(key, "key")
    return Op(("HSET", place, name, codec.encode(value, limit)), bool)


def forget(owner: str, key: str | None = None) -> Op[bool]:
    """Forgets a key, or without one everything; whether there was something to forget."""
    place = keys.profile(check_owner(owner))
    command = ("DEL", place) if key is None else ("HDEL", place, keys.check_id(key, "key"))
    return Op(command, bool)

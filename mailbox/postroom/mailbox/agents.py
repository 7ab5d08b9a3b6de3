"""Stored agents: each change makes a version with a number of its own; one version of each agent is the present one.

Written by operators, never by workers. A run keeps the number it began with, so an old version stays for a while.
"""

from dataclasses import dataclass
from typing import Any

from postroom.mailbox import keys
from postroom.mailbox.errors import AgentNotStored, InvalidInput
from postroom.mailbox.ops import Fields, Op, hash_fields, transition
from postroom.mailbox.specs import AgentSpec

# So many versions of an agent are kept in any case; older ones for as long as a finished run is.
VERSIONS_KEPT = 64
MAX_NOTE = 256
# How a run says that it began with a stored version.
_PIN = "stored:"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an agent; `replaced` is when it ceased to be the present one. `spec` is the stored text."""

    number: int
    agent: str
    spec: str
    at: int
    by: str
    note: str
    replaced: int | None


@dataclass(frozen=True, slots=True)
class Put:
    """A definition is in Redis: `stored` as a new version, or the `same` as the present one."""

    outcome: str
    agent: str
    version: int


def put(
    spec: AgentSpec,
    expected: int | None,
    by: str,
    note: str,
    keep_ms: int,
    kept: int = VERSIONS_KEPT,
    now: int | None = None,
) -> Op[Put]:
    """Makes this the present version if that is still `expected` (0: none yet, None: whatever it is)."""
    for what, words in (("by", by), ("note", note)):
        if len(words) > MAX_NOTE:
            raise InvalidInput(f"{what} has {len(words)} characters, the limit is {MAX_NOTE}")
    args = (spec.id, _expected(expected), spec.written(), by, note, kept, keep_ms)
    return transition("put_agent", (keys.AGENTS,), now, args, lambda reply: Put(reply[0].decode(), spec.id, reply[1]))


def drop(agent: str, expected: int | None, keep_ms: int, now: int | None = None) -> Op[int]:
    """Takes an agent out of service; the number of the version that was dropped."""

    def parse(number: int) -> int:
        if not number:
            raise AgentNotStored(f"agent {agent!r} is not stored")
        return number

    args = (keys.check_name(agent, "agent"), _expected(expected), keep_ms)
    return transition("drop_agent", (keys.AGENTS,), now, args, parse)


def present() -> Op[dict[str, int]]:
    """The number of the present version of each agent."""

    def parse(reply: Any) -> dict[str, int]:
        return {agent: int(number) for agent, number in sorted(hash_fields(reply).items())}

    return Op(("HGETALL", keys.AGENTS), parse)


def changes() -> Op[int]:
    """A number that is another one after every change."""
    return Op(("GET", keys.AGENTS_VERSION), lambda reply: int(reply or 0))


def present_version(agent: str) -> Op[int]:
    """The number of an agent's present version, 0 when it is not stored."""
    return Op(("HGET", keys.AGENTS, keys.check_name(agent, "agent")), lambda reply: int(reply or 0))


def version(number: int) -> Op[Version]:
    """One version, or AgentNotStored."""

    def parse(reply: Any) -> Version:
        if not reply:
            raise AgentNotStored(f"there is no version {number} of any agent; it may have been given up")
        return _version(number, hash_fields(reply))

    return Op(("HGETALL", keys.agent_version(number)), parse)


def history(agent: str) -> Op[list[int]]:
    """The versions of an agent that are still there, the newest first."""
    command = ("ZRANGE", keys.agent_history(keys.check_name(agent, "agent")), 0, -1, "REV")
    return Op(command, lambda reply: [int(number) for number in reply])


def pin(number: int) -> str:
    """What a run that began with this version remembers."""
    return f"{_PIN}{number}"


def pinned(config: str) -> int:
    """The number of the stored version a run began with, 0 when it was another kind."""
    number = config.removeprefix(_PIN)
    return int(number) if config.startswith(_PIN) and number.isdecimal() else 0


def _version(number: int, fields: Fields) -> Version:
    text = {name: value.decode() for name, value in fields.items()}
    replaced = int(text["replaced"]) if "replaced" in text else None
    return Version(number, text["agent"], text["spec"], int(text["at"]), text["by"], text["note"], replaced)


def _expected(number: int | None) -> str:
    return "" if number is None else str(number)

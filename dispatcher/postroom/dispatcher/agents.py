"""Plans for stored agents: put, get, list, drop, restore. Workers pick a change up by themselves."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.dispatcher.plans import Plan, all_of, one
from postroom.mailbox import agents, fleet
from postroom.mailbox.backends import A2A
from postroom.mailbox.cards import card_of, remote_spec
from postroom.mailbox.contract import parse
from postroom.mailbox.errors import AgentNotStored, InvalidInput, PostroomError
from postroom.mailbox.settings import Settings
from postroom.mailbox.specs import AgentSpec, read_spec


@dataclass(frozen=True, slots=True)
class StoredAgent:
    """A stored definition: give `version` back to `put_agent` to replace exactly what you have seen."""

    agent: str
    version: int
    at: int
    by: str
    note: str
    present: bool
    spec: AgentSpec


@dataclass(frozen=True, slots=True)
class Listed:
    """An agent with what its workers make of it: who cannot serve it and why, and who has not seen it yet."""

    agent: str
    version: int
    model: str
    description: str
    at: int
    by: str
    refused: dict[str, str] = field(default_factory=dict)
    behind: list[str] = field(default_factory=list)


def put_agent(
    settings: Settings,
    /,
    spec: AgentSpec | Mapping[str, Any],
    *,
    expected: int | None = 0,
    by: str = "",
    note: str = "",
) -> Plan[agents.Put]:
    """Stores a definition for all runs to come. `expected` is the version it replaces: 0 for none, None for any."""
    known = spec if isinstance(spec, AgentSpec) else parse(AgentSpec, spec)
    return (yield from one(agents.put(known, expected, by, note, settings.run_retention_ms)))


def put_card(
    settings: Settings,
    /,
    config: A2A | str,
    card: Mapping[str, Any],
    *,
    agent: str = "",
    force: bool = False,
    by: str = "",
    note: str = "",
) -> Plan[agents.Put]:
    """Stores a remote agent as its card introduces it; `config` is its address, or that and more.

    What was discovered at that address before is replaced; anything else of the same name only by `force`.
    """
    known = A2A(config) if isinstance(config, str) else config
    spec = remote_spec(known, card_of(known.url, card, known.any_host), agent)
    expected = None if force else (yield from _discovered(spec.id, known.url))
    return (yield from put_agent(settings, spec, expected=expected, by=by, note=note))


def _discovered(agent: str, url: str) -> Plan[int]:
    """The version that was discovered at this address, 0 when the agent came from elsewhere or is not there."""
    number = yield from one(agents.present_version(agent))
    if not number:
        return 0
    backend = read_spec((yield from one(agents.version(number))).spec).backend
    return number if backend and backend.config.url == url else 0


def get_agent(settings: Settings, /, agent: str, *, version: int | None = None) -> Plan[StoredAgent]:
    """A stored definition: the present one, or an older version of it."""
    present = yield from one(agents.present_version(agent))
    number = version or present
    if not number:
        raise AgentNotStored(f"agent {agent!r} is not stored; `postroom agents list` shows those that are")
    found = yield from one(agents.version(number))
    if found.agent != agent:
        raise AgentNotStored(f"version {number} is one of agent {found.agent!r}, not of {agent!r}")
    return StoredAgent(agent, number, found.at, found.by, found.note, number == present, read_spec(found.spec))


def agent_versions(settings: Settings, /, agent: str) -> Plan[list[StoredAgent]]:
    """All versions of an agent that are still there, the newest first; those of a dropped one, too."""
    present, numbers = yield from all_of([agents.present_version(agent), agents.history(agent)])
    found = yield [agents.version(number) for number in numbers]
    return [
        StoredAgent(agent, each.number, each.at, each.by, each.note, each.number == present, read_spec(each.spec))
        for each in found
        if isinstance(each, agents.Version)
    ]


def list_agents(settings: Settings, /) -> Plan[list[Listed]]:
    """The stored agents by name, each with what the workers alive make of it."""
    present, names = yield from all_of([agents.present(), fleet.names()])
    found = yield [agents.version(number) for number in present.values()]
    pulses = yield from all_of([fleet.pulse(name) for name in names])
    workers = [_Worker(pulse) for pulse in fleet.alive(pulses)]
    return [_listed(each, workers) for each in found if isinstance(each, agents.Version)]


def drop_agent(settings: Settings, /, agent: str, *, expected: int | None = None) -> Plan[int]:
    """Takes an agent out of service; runs under way end with what they began with. The version that was dropped."""
    return (yield from one(agents.drop(agent, expected, settings.run_retention_ms)))


def restore_agent(settings: Settings, /, agent: str, version: int, *, by: str = "") -> Plan[agents.Put]:
    """Makes an older version the present one again, as a new version; also of an agent that was dropped."""
    present = yield from one(agents.present_version(agent))
    old = yield from get_agent(settings, agent, version=version)
    if version == present:
        raise InvalidInput(f"version {version} of agent {agent!r} is the present one")
    return (yield from put_agent(settings, old.spec, expected=present, by=by, note=f"restores version {version}"))


class _Worker:
    """What a worker says of the stored agents."""

    def __init__(self, pulse: fleet.Pulse) -> None:
        self.name = pulse.name
        # A worker that says nothing of them does not serve them: its version is older, or it is about to say so.
        self.seen = int(pulse.fields.get("agents") or 0)
        self.refused: dict[str, Any] = json.loads(pulse.fields.get("refused") or b"{}")


def _listed(found: agents.Version, workers: list[_Worker]) -> Listed:
    model, description = "", ""
    try:
        spec = read_spec(found.spec)
        model = f"{spec.backend.kind} {spec.backend.config.url}" if spec.backend else spec.model or ""
        description = spec.description
    except PostroomError:
        description = "written by a newer version"
    return Listed(
        found.agent,
        found.number,
        model,
        description,
        found.at,
        found.by,
        {
            worker.name: refusal["reason"]
            for worker in workers
            if (refusal := worker.refused.get(found.agent)) and refusal["version"] == found.number
        },
        [worker.name for worker in workers if worker.seen < found.number],
    )

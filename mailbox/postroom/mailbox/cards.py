"""Agent cards: how a remote agent introduces itself, read with the distrust that a stranger's words deserve."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from postroom.mailbox.backends import A2A, Backend, Card
from postroom.mailbox.contract import parse
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.foreign import from_json
from postroom.mailbox.specs import AgentSpec

PROTOCOL: Final = "1.0"
WELL_KNOWN: Final = "/.well-known/agent-card.json"
MAX_CARD_BYTES: Final = 256 << 10
# What we speak, what we like best first.
BINDINGS: Final = ("HTTP+JSON", "JSONRPC")
LONGEST: Final = 4096
_ODD: Final = (KeyError, TypeError, AttributeError, ValueError)


def card_address(url: str) -> str:
    """Where the card of an agent lies; the address may also be that of the card itself."""
    return url if url.endswith(".json") else url.rstrip("/") + WELL_KNOWN


def read_card(url: str, body: bytes, any_host: bool = False) -> Card:
    """A card from the bytes found at `url`, or one line that says why it is of no use."""
    try:
        data = from_json(body)
    except ValueError:
        raise InvalidInput(f"the card of {url} is not JSON; check the address") from None
    return card_of(url, data, any_host)


def card_of(url: str, data: Any, any_host: bool = False) -> Card:
    """A card from its data. One that sends us to another host is refused unless that is allowed."""
    try:
        place = _interface(url, data)
        _no_extensions(url, data)
        described = {
            "name": _cut(data["name"]),
            "description": _cut(data.get("description")),
            "url": place["url"],
            "binding": place["protocolBinding"],
            "tenant": place.get("tenant") or "",
            "streaming": bool((data.get("capabilities") or {}).get("streaming")),
            "skills": [
                {"id": _cut(each["id"]), "name": _cut(each.get("name")), "description": _cut(each.get("description"))}
                for each in (data.get("skills") or ())[:256]
            ],
        }
        card = parse(Card, described)
        there, here = urlsplit(card.url), urlsplit(url)
    except _ODD as error:
        raise InvalidInput(f"the card of {url} has a shape we do not know ({error!r})") from None
    if there.hostname != here.hostname and not any_host:
        raise InvalidInput(
            f"the card of {url} names another host, {there.hostname}; discover it there, or allow any host"
        )
    if here.scheme == "https" != there.scheme:
        raise InvalidInput(f"the card of {url} names an address without encryption, {card.url}")
    return card


def _interface(url: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    offered = [each for each in data.get("supportedInterfaces") or () if _is_ours(each["protocolVersion"])]
    for binding in BINDINGS:
        for each in offered:
            if each["protocolBinding"] == binding:
                return each  # type: ignore[no-any-return]
    if offered:
        spoken = ", ".join(sorted({str(each["protocolBinding"]) for each in offered}))
        raise InvalidInput(f"the agent at {url} speaks {spoken}; {' or '.join(BINDINGS)} is needed")
    versions = {str(each["protocolVersion"]) for each in data.get("supportedInterfaces") or ()}
    told = ", ".join(sorted(versions)) or str(data.get("protocolVersion") or "no version at all")
    raise InvalidInput(f"the agent at {url} offers A2A {told}; {PROTOCOL} is needed")


def _is_ours(version: str) -> bool:
    return version.partition(".")[0] == PROTOCOL.partition(".")[0]


def _no_extensions(url: str, data: Mapping[str, Any]) -> None:
    for each in (data.get("capabilities") or {}).get("extensions") or ():
        if each.get("required"):
            raise InvalidInput(f"the agent at {url} requires the extension {each['uri']!r}, which we do not have")


def _cut(words: Any) -> str:
    return str(words or "")[:LONGEST]


def remote_spec(config: A2A, card: Card, agent: str = "") -> AgentSpec:
    """The definition of a discovered agent; unless another name is given it has its own, as far as names allow that."""
    name = agent or re.sub(r"[^A-Za-z0-9_.-]+", "-", card.name).strip("-.")[:128].lower()
    if not name:
        raise InvalidInput(f"the agent at {config.url} has no usable name; give it an id")
    known = config.model_copy(update={"card": card})
    return AgentSpec(id=name, description=card.description, backend=Backend(kind="a2a", config=known))

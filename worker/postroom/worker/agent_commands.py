"""The command `agents`: stored definitions listed, shown, put, dropped and restored."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from postroom.dispatcher.agents import Listed
from postroom.dispatcher.answers import client_of, plain, print_line, say
from postroom.dispatcher.arguments import whole
from postroom.dispatcher.client import Dispatcher
from postroom.dispatcher.terminal import table
from postroom.mailbox.backends import A2A
from postroom.mailbox.cards import read_card
from postroom.mailbox.contract import parse
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.specs import AgentSpec
from postroom.worker.loading import load


def add(verbs: Any) -> None:
    """Puts the command on the command line."""
    agents = verbs.add_parser("agents", help="stored agents: list, show, put, discover, drop, restore")
    agents.add_argument("do", choices=sorted(_DEEDS))
    agents.add_argument(
        "target",
        metavar="AGENT|FILE|URL",
        nargs="?",
        help="an agent; for put a JSON file, or - for stdin; for discover the address of a remote agent (A2A 1.0)",
    )
    agents.add_argument("--id", default="", help="discover: how to call the agent (default: as its card does)")
    agents.add_argument("--auth-env", metavar="NAME", help="discover: the variable A2A_… with its bearer token")
    agents.add_argument("--any-host", action="store_true", help="discover: the card may name another host")
    agents.add_argument("--version", type=whole, help="show or restore this version")
    agents.add_argument(
        "--expected", type=whole, help="put or drop only if this is the present version (0: not stored)"
    )
    agents.add_argument("--force", action="store_true", help="put or discover whatever the present version is")
    agents.add_argument("--app", help="put only what this module:app can serve")
    agents.add_argument("--by", default="", help="who does it")
    agents.add_argument("--note", default="", help="why")
    agents.set_defaults(run=_agents)


def _agents(given: argparse.Namespace) -> int:
    if given.do != "list" and not given.target:
        raise InvalidInput(f"agents {given.do} needs {_NEEDS.get(given.do, 'the name of an agent')}")
    with client_of(given) as client:
        _DEEDS[given.do](given, client)
    return 0


def _list(given: argparse.Namespace, client: Dispatcher) -> None:
    found = client.list_agents()
    if given.json:
        for each in found:
            print_line(json.dumps(plain(each), ensure_ascii=False))
        return
    rows = [[each.agent, each.version, each.model, each.by, _standing(each)] for each in found]
    table(["agent", "version", "model", "by", "workers"], rows)
    for each in found:
        for worker, reason in each.refused.items():
            print_line(f"{worker} cannot serve {each.agent}: {reason}")


def _standing(listed: Listed) -> str:
    parts = [(f"{len(listed.refused)} refuse it", listed.refused), (f"{len(listed.behind)} behind", listed.behind)]
    return ", ".join(words for words, those in parts if those) or "ok"


def _show(given: argparse.Namespace, client: Dispatcher) -> None:
    found = client.get_agent(given.target, version=given.version)
    if given.json:
        print_line(json.dumps(plain(found), ensure_ascii=False))
        return
    print_line(json.dumps(plain(found), ensure_ascii=False, indent=2))
    numbers = [str(each.version) for each in client.agent_versions(given.target)]
    sys.stderr.write(f"versions: {', '.join(numbers)}\n")


def _put(given: argparse.Namespace, client: Dispatcher) -> None:
    spec, seen = _read(given.target)
    expected = given.expected if given.expected is not None else seen
    if given.app:
        _check(given.app, spec, client)
    done = client.put_agent(spec, expected=None if given.force else expected, by=given.by, note=given.note)
    say(given, done, f"{done.outcome} {done.agent} as version {done.version}")


def _check(place: str, spec: AgentSpec, client: Dispatcher) -> None:
    """Whether an app could serve it, found out before any worker has to refuse it."""
    app = load(place)
    app.resolve(spec, {*app.agents, spec.id, *(each.agent for each in client.list_agents())})


def _read(place: str) -> tuple[AgentSpec, int]:
    """A definition, and the version it replaces if the file is what `show` has shown."""
    try:
        text = sys.stdin.read() if place == "-" else Path(place).read_text(encoding="utf-8")
        data = json.loads(text)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{place} cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidInput(f"{place} holds a {type(data).__name__}, not a JSON object")
    if "spec" not in data:
        return parse(AgentSpec, data), 0
    if not isinstance(data["spec"], dict) or not isinstance(data.get("version"), int):
        raise InvalidInput(f"{place} has a spec, but not as `postroom agents show` shows it")
    return parse(AgentSpec, data["spec"]), data["version"]


def _discover(given: argparse.Namespace, client: Dispatcher) -> None:
    config = A2A(given.target, auth_env=given.auth_env, any_host=given.any_host)
    card = asyncio.run(_card(config))
    done = client.put_card(config, card, agent=given.id, force=given.force, by=given.by, note=given.note)
    say(given, done, f"{done.outcome} {done.agent} as version {done.version}")


async def _card(config: A2A) -> Any:
    """The card that lies at an address, found out to be one."""
    from postroom.worker.model.http import Http
    from postroom.worker.remote.peer import Peer

    http = Http()
    try:
        # Cards are mostly public; the token may be known to the workers alone.
        shown = config if (config.auth_env or "") in os.environ else config.model_copy(update={"auth_env": None})
        body = await Peer(config.url, shown, http, os.environ).fetch()
    finally:
        await http.close()
    read_card(config.url, body, config.any_host)
    return json.loads(body)


def _drop(given: argparse.Namespace, client: Dispatcher) -> None:
    number = client.drop_agent(given.target, expected=given.expected)
    say(given, {"agent": given.target, "dropped": number}, f"dropped {given.target}, which was at version {number}")


def _restore(given: argparse.Namespace, client: Dispatcher) -> None:
    if given.version is None:
        raise InvalidInput("which version? `postroom agents show AGENT` names those there are; give --version")
    done = client.restore_agent(given.target, given.version, by=given.by)
    say(given, done, f"{done.outcome} {done.agent} as version {done.version}")


_DEEDS: dict[str, Callable[[argparse.Namespace, Dispatcher], None]] = {
    "list": _list,
    "show": _show,
    "put": _put,
    "discover": _discover,
    "drop": _drop,
    "restore": _restore,
}
_NEEDS = {"put": "a file", "discover": "the address of a remote agent"}

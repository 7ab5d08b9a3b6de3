"""The transitions: one Lua file each, put together with the parts it includes and the lifecycle tables.

A script is named by the hash of its text, so two versions of Postroom can share a server during a rolling deploy.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from postroom.mailbox import lifecycle

NAMES: Final = (
    "submit",
    "claim",
    "commit",
    "suspend",
    "finish",
    "release",
    "renew",
    "decide",
    "revoke",
    "cancel",
    "interrupt",
    "send",
    "reclaim",
    "tidy",
    "deliver",
    "spend",
    "redeliver",
    "delete",
    "fork",
    "put_agent",
    "drop_agent",
    "admit",
    "settle",
    "carried",
    "recover",
    "relay",
)
# How long an answer to a doorbell may take before somebody looks whether it was heard.
RING_AGAIN_MS: Final = 5_000
# The function a doorbell names; workers look it up in a list of their own and never import what Redis says.
JOB: Final = "postroom.worker.jobs.execute_run"
_INCLUDE: Final = "--@include"
_SOURCES: Final = files("postroom.mailbox") / "lua"


@dataclass(frozen=True, slots=True)
class Script:
    """One transition, ready to be called by its hash."""

    name: str
    source: str
    sha: str


_defined: dict[str, Script] = {}


def _set(values: Iterable[str]) -> str:
    return "{" + ", ".join(f"{value} = true" for value in sorted(values)) + "}"


def _machine(table: dict[str, frozenset[str]]) -> str:
    return "{" + ", ".join(f"{old} = {_set(news)}" for old, news in table.items()) + "}"


# Rendered from the one place they are written, so Lua and Python cannot disagree. Only a script that moves a call needs
# that table, so it is made on demand: a script runs from its first line at every call.
_RENDERED: Final = {
    "machines": "\n".join(
        (
            f"local function call_machine() return {_machine(lifecycle.CALL)} end",
            f"local CALL_DONE = {_set(lifecycle.CALL_DONE)}",
            f"local WOKEN_BY_MAIL = {_set(lifecycle.WOKEN_BY_MAIL)}",
            f"local RING_AGAIN = {RING_AGAIN_MS}",
            f"local JOB = '{JOB}'",
        )
    )
}


@cache
def load(name: str) -> Script:
    """The script of a transition."""
    own = (_SOURCES / f"{name}.lua").read_text(encoding="utf-8")
    first, _, rest = own.partition("\n")
    parts = []
    for part in first.removeprefix(_INCLUDE).split():
        parts.append(_RENDERED.get(part) or (_SOURCES / "lib" / f"{part}.lua").read_text(encoding="utf-8"))
    return define(name, "\n".join([*parts, rest]))


@cache
def of_package(package: str, name: str) -> Script:
    """A script that another package brings along; it stands by itself and includes nothing."""
    return define(name, (files(package) / "lua" / f"{name}.lua").read_text(encoding="utf-8"))


def define(name: str, source: str) -> Script:
    """A script of this process; whoever teaches a server teaches it this one too."""
    script = Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
    _defined[script.sha] = script
    return script


def load_all() -> list[Script]:
    """Every script, for a server that has not seen them."""
    for name in NAMES:
        load(name)
    return list(_defined.values())

"""The transitions: one Lua file each, which together with the parts they share make one library of Redis functions.

A library is named by the hash of its text, so two versions of Postroom can share a server during a rolling deploy. What
another package brings along stands by itself, as a script that is called by its own hash.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from postroom.mailbox import lifecycle

# Parts come before those that use them.
PARTS: Final = (
    "shared",
    "call",
    "thread",
    "hold",
    "machines",
    "doorbell",
    "moves",
    "admission",
    "post",
    "claiming",
    "agents",
    "batch",
)
OF_THREADS: Final = (
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
    "delete",
    "fork",
    "carried",
    "recover",
    "relay",
)
# Those that many runs of one process ask for at the same time; several of them can leave as one call.
TOGETHER: Final = frozenset({"submit", "claim", "commit", "suspend", "finish", "release", "renew", "send"})
SEVERAL: Final = "several"
OTHERS: Final = ("take", "tidy", "deliver", "settle", "redeliver", "admit", "spend", "put_agent", "drop_agent")
# How long an answer to a doorbell may take before somebody looks whether it was heard.
RING_AGAIN_MS: Final = 5_000
# A started doorbell counts as abandoned so many seconds after its worker last said otherwise. Longer than any lease:
# the run is recovered from its lock, and RQ's own clean-up must not meddle meanwhile.
ABANDONED_AFTER_S: Final = 120
# What a claim tells of its thread and of its run, in this order; those that the script itself looks at come first. Of a
# run that was never claimed before there is nothing that is told of one that has begun.
CLAIMED_OF_THREAD: Final = ("open", "fence", "mail", "seq", "mark", "stateful", "usage")
CLAIMED_OF_RUN: Final = (
    *("status", "started", "start_at", "deadline", "commits", "cancel"),
    *("step", "attempts", "agent", "request", "tenant", "queue", "priority", "parent"),
)
CLAIMED_OF_BEGUN: Final = ("worker", "activation", "phase", "agent_now", "config", "input_seq", "usage")
# The function a doorbell names; workers look it up in a list of their own and never import what Redis says.
JOB: Final = "postroom.worker.jobs.execute_run"
_SOURCES: Final = files("postroom.mailbox") / "lua"


@dataclass(frozen=True, slots=True)
class Library:
    """All transitions, ready to be loaded."""

    name: str
    source: str


@dataclass(frozen=True, slots=True)
class Script:
    """A script of another package, ready to be called by its hash."""

    name: str
    source: str
    sha: str


_defined: dict[str, Script] = {}


def _set(values: Iterable[str]) -> str:
    return "{" + ", ".join(f"{value} = true" for value in sorted(values)) + "}"


def _list(values: Iterable[str]) -> str:
    return "{" + ", ".join(f"'{value}'" for value in values) + "}"


def _machine(table: dict[str, frozenset[str]]) -> str:
    return "{" + ", ".join(f"{old} = {_set(news)}" for old, news in table.items()) + "}"


# Rendered from the one place they are written, so Lua and Python cannot disagree.
_RENDERED: Final = {
    "machines": "\n".join(
        (
            f"local CALL_MACHINE = {_machine(lifecycle.CALL)}",
            f"local CALL_DONE = {_set(lifecycle.CALL_DONE)}",
            f"local WOKEN_BY_MAIL = {_set(lifecycle.WOKEN_BY_MAIL)}",
            f"local CLAIMED_OF_THREAD = {_list(CLAIMED_OF_THREAD)}",
            f"local CLAIMED_OF_RUN = {_list(CLAIMED_OF_RUN)}",
            f"local CLAIMED_OF_BEGUN = {_list(CLAIMED_OF_BEGUN)}",
            f"local RING_AGAIN = {RING_AGAIN_MS}",
            f"local ABANDONED_AFTER = {ABANDONED_AFTER_S}",
            f"local JOB = '{JOB}'",
        )
    )
}


@cache
def body() -> str:
    """The Lua text of all parts and transitions, each of these a function of the table `transitions`."""
    shared = [_RENDERED.get(part) or _read(f"lib/{part}") for part in PARTS]
    own = [f"function transitions.{name}()\n{_read(name)}\nend" for name in (*OF_THREADS, *OTHERS)]
    return "\n".join([*shared, "local transitions = {}", *own, _read("lib/calling")])


@cache
def library() -> Library:
    """All transitions as one library of functions."""
    name = f"postroom_{_digest(body())[:12]}"
    called = [(each, f"on_thread(keys, arguments, '{each}')") for each in OF_THREADS]
    called += [(each, f"alone(keys, arguments, '{each}')") for each in OTHERS]
    called.append((SEVERAL, "together(arguments)"))
    registered = [
        f"redis.register_function('{name}_{each}', function(keys, arguments) return {call} end)"
        for each, call in called
    ]
    return Library(name, "\n".join([f"#!lua name={name}", body(), *registered]))


@cache
def function(name: str) -> str:
    """What the server calls a transition."""
    if name not in (*OF_THREADS, *OTHERS, SEVERAL):
        raise KeyError(name)
    return f"{library().name}_{name}"


@cache
def of_package(package: str, name: str) -> Script:
    """A script that another package brings along."""
    source = (files(package) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    script = Script(name, source, _digest(source))
    _defined[script.sha] = script
    return script


def of_packages() -> list[Script]:
    """Those of them that this process has asked for."""
    return list(_defined.values())


def _read(name: str) -> str:
    return (_SOURCES / f"{name}.lua").read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

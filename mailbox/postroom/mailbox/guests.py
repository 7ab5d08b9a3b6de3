"""Processes that work on one embedded server: its owner leaves last, and the others notice when it leaves.

A guest holds a shared lock on `guests.lock` while it works, so that it counts for exactly as long as it lives. An owner
told to stop withdraws the server, whereupon guests finish what they are at and leave; then it stops the server.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroom.mailbox.server import EmbeddedServer, start
from postroom.mailbox.settings import Settings

if sys.platform != "win32":
    import fcntl

GUESTS_LOCK = "guests.lock"
# Beyond the time they have to drain, guests must notice that they are to leave, and say goodbye.
FAREWELLS_S = 12.0
LOOK_S = 0.05


@contextmanager
def working(settings: Settings) -> Iterator[EmbeddedServer]:
    """The server of `settings.data_dir` for a process that works until it is told to stop, as owner or as guest."""
    with start(settings) as server, (server.home / GUESTS_LOCK).open("a") as lock:
        if not server.owned:
            fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            yield server
        finally:
            if server.owned:
                server.withdraw()
                _outlast(server.home / GUESTS_LOCK, settings.drain_ms / 1000 + FAREWELLS_S)


def _outlast(path: Path, bound_s: float) -> None:
    """Waits until no guest is left, or for so long; a signal ends the wait."""
    hurried = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: hurried.set())
    until = time.monotonic() + bound_s
    with path.open("a") as lock:
        while not _is_free(lock.fileno()) and time.monotonic() < until and not hurried.wait(LOOK_S):
            pass


def _is_free(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

"""The embedded server: a real Valkey or Redis on loopback, for whoever gave no URL.

One server per data directory. The first caller owns it and stops it on exit; later callers, in this process or
another, attach to it and never stop it. When the owner goes the server goes, so those still attached lose their
connection and may start again, one of them as the new owner; the data is there again.

Two file locks hold this together. `owner.lock` is held by the owning process. `server.lock` is inherited by the server
itself, so it is held exactly as long as a server writes to the directory, however its owner died: two servers never
share one append-only file. `server.json` says where the server is; it is only believed when the server found there
names the same process and the same directory.
"""

import atexit
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from redis.exceptions import RedisError

from postroom.mailbox.binary import find_binary
from postroom.mailbox.connect import dial
from postroom.mailbox.errors import NoServer, ServerUnreachable
from postroom.mailbox.settings import Settings

if sys.platform != "win32":
    import fcntl

OWNER_LOCK, SERVER_LOCK, SEAT, CONFIG, LOG = "owner.lock", "server.lock", "server.json", "server.conf", "server.log"
TRIES = 5
STOP_S = 30.0
ANSWER_S = 1.0
POLL_S = 0.01

CONFIGURATION = f"""\
# Written at every start; changes are lost.
bind 127.0.0.1
port {{port}}
logfile {LOG}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
stream-node-max-bytes 512
"""

# The allocator of the GNU C library, which the wheel's server uses, keeps seven freed pieces of a size at hand and
# gathers all others again and again: a twelfth of what a run costs. Other allocators ignore this. It must stay one
# setting: a second one would not get past `setpriv`.
ALLOCATOR = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=2000"}

Found = TypeVar("Found")


@dataclass(eq=False)
class EmbeddedServer:
    """A running server; `close`, the end of a `with` block or of the process stops it if it is owned."""

    url: str
    pid: int
    home: Path
    owned: bool = False
    _held: ExitStack = field(default_factory=ExitStack, repr=False)

    def close(self) -> None:
        """Stops an owned server and frees its directory; does nothing when attached or done before."""
        self._held.close()

    def stays(self) -> bool:
        """Whether it is still to be found where it was; an owner that is about to stop it withdraws it first."""
        return _read_seat(self.home) == _Seat(self.pid, urlsplit(self.url).port or 0)

    def lives(self) -> bool:
        """Whether it runs."""
        return _is_held(self.home / SERVER_LOCK)

    def withdraw(self) -> None:
        """Lets nobody find it any more, so that those who use it leave before it stops."""
        (self.home / SEAT).unlink(missing_ok=True)

    def gone(self) -> ServerUnreachable:
        """What to tell a user when it went away under a process that works on it."""
        how = f"has died ({_last_words(self.home)})" if self.owned else "has gone with its owner"
        return ServerUnreachable(f"the embedded server in {self.home} {how}; start this again: the data is still there")

    def __enter__(self) -> "EmbeddedServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _Seat:
    """Where a server was started: enough to find it again, not yet proof that it is still there."""

    pid: int
    port: int

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


def start(settings: Settings, *, patience_s: float = 60.0) -> EmbeddedServer:
    """The server of `settings.data_dir`: started and owned, or attached to when another caller owns it."""
    home = settings.data_dir.absolute()
    if sys.platform == "win32":
        raise NoServer("the embedded server does not run on Windows; set POSTROOM_REDIS_URL")
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        home = home.resolve()
        server = _poll(lambda: _own(home, patience_s) or _attach(home), patience_s)
    except OSError as error:
        raise NoServer(
            f"{home} cannot hold the server's data ({error.strerror}); set POSTROOM_DATA_DIR to a writable directory"
        ) from error
    if server is None:
        raise ServerUnreachable(
            f"the server in {home} belongs to another process and does not answer; "
            f"try again, or end that process: {_last_words(home)}"
        )
    return server


def attach(settings: Settings, *, patience_s: float = 60.0) -> EmbeddedServer:
    """The server of `settings.data_dir` that another caller owns; never starts one."""
    home = settings.data_dir.absolute().resolve()
    # Whoever holds the lock may still be on the way up.
    server = _poll(lambda: _attach(home) or not _is_held(home / OWNER_LOCK), patience_s)
    if not isinstance(server, EmbeddedServer):
        raise NoServer(f"no server runs in {home}; start one with `postroom up`, or set POSTROOM_REDIS_URL")
    return server


def _attach(home: Path) -> EmbeddedServer | None:
    seat = _read_seat(home)
    return EmbeddedServer(seat.url, seat.pid, home) if seat and _is_ready(home, seat) else None


def _own(home: Path, patience_s: float) -> EmbeddedServer | None:
    with ExitStack() as held:
        lock = _claim(home / OWNER_LOCK)
        if lock is None:
            return None
        held.enter_context(lock)
        with _take_over(home, patience_s) as guard:
            child, seat = _launch(home, find_binary(), guard, islice(_free_ports(), TRIES), patience_s)
        held.callback(_stop, child)
        server = EmbeddedServer(seat.url, seat.pid, home, True)
        held.callback(server.withdraw)
        server._held = held.pop_all()
    _bind_to_process(server, lock)
    return server


def _bind_to_process(server: EmbeddedServer, lock: TextIOWrapper) -> None:
    """Stops the server when this process ends, but not when a fork of it does."""

    def disown() -> None:
        # A fork shares the lock: unless it lets go, the directory stays owned after the real owner has died.
        server.owned = False
        server._held.pop_all()
        lock.close()

    atexit.register(server.close)
    server._held.callback(atexit.unregister, server.close)
    os.register_at_fork(after_in_child=disown)


def _claim(path: Path) -> TextIOWrapper | None:
    """The lock on this file until it is closed, or None while another holds it."""
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _is_held(path: Path) -> bool:
    """Whether somebody has the lock on this file."""
    if not path.exists():
        return False
    try:
        lock = _claim(path)
    except OSError:
        return False
    if lock:
        lock.close()
    return lock is None


def _take_over(home: Path, patience_s: float) -> TextIOWrapper:
    """The server's lock, once a server whose owner was killed has gone."""

    def attempt() -> TextIOWrapper | None:
        guard = _claim(home / SERVER_LOCK)
        if guard is None:
            _dismiss(home)
        return guard

    guard = _poll(attempt, patience_s)
    if guard is None:
        raise ServerUnreachable(
            f"a server that lost its owner still runs in {home} and does not stop; kill it: {_last_words(home)}"
        )
    return guard


def _dismiss(home: Path) -> None:
    """Asks the abandoned server to stop: over its own port, for a pid may mean another process in another container."""
    seat = _read_seat(home)
    if seat and _identify(home, seat):
        with suppress(RedisError), dial(seat.url, timeout=ANSWER_S) as client:
            client.shutdown()


def _launch(
    home: Path, binary: str, guard: TextIOWrapper, ports: Iterable[int], patience_s: float
) -> tuple[subprocess.Popen[bytes], _Seat]:
    """Starts the server on the first port that it gets; a port found free may be lost before the server binds it."""
    for port in ports:
        (home / CONFIG).write_text(CONFIGURATION.format(port=port))
        child = _spawn(home, binary, guard)
        seat = _Seat(child.pid, port)
        with ExitStack() as failing:
            failing.callback(_stop, child)
            _write_seat(home, seat)
            if _came_up(home, child, seat, patience_s):
                failing.pop_all()
                return child, seat
        if "Failed listening" not in _last_words(home):
            raise NoServer(f"the server in {home} did not start; repair that directory or move it: {_last_words(home)}")
    raise NoServer(f"no free port on 127.0.0.1 for the server in {home}: {_last_words(home)}")


def _came_up(home: Path, child: subprocess.Popen[bytes], seat: _Seat, patience_s: float) -> bool:
    """Whether the server got ready: patience is for its first answer, loading takes as long as the data needs."""

    def gone() -> bool:
        return child.poll() is not None

    answers = _poll(lambda: gone() or _identify(home, seat) is not None, patience_s)
    return bool(answers and _poll(lambda: gone() or _is_ready(home, seat), math.inf) and not gone())


def _spawn(home: Path, binary: str, guard: TextIOWrapper) -> subprocess.Popen[bytes]:
    with (home / LOG).open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - the program found, no input of a user
            [*_tie(), binary, CONFIG],
            cwd=home,
            env=ALLOCATOR | os.environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[guard.fileno()],
            start_new_session=True,  # Ctrl-C is for the owner, who may have things to write before it stops the server
            umask=0o077,
        )


def _tie() -> list[str]:
    """A prefix that has Linux stop the server when its owner is killed; without it the next start does."""
    setpriv = shutil.which("setpriv")
    # The signal follows the thread that started the server, and only the main one lasts as long as the process.
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return []
    prefix = [setpriv, "--pdeathsig", "TERM"]
    tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)  # noqa: S603 - not all know the option
    return [] if tried.returncode else prefix


def _stop(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _identify(home: Path, seat: _Seat) -> dict[str, Any] | None:
    """What the server at this seat says of itself, if it is the one of this directory."""
    try:
        with dial(seat.url, timeout=ANSWER_S) as client:
            info: dict[str, Any] = client.info()
            directory = client.config_get("dir").get("dir")
    except RedisError:
        return None
    return info if (info.get("process_id"), directory) == (seat.pid, str(home)) else None


def _is_ready(home: Path, seat: _Seat) -> bool:
    info = _identify(home, seat)
    return info is not None and info.get("loading") == 0


def _write_seat(home: Path, seat: _Seat) -> None:
    draft = home / f"{SEAT}.draft"
    draft.write_text(json.dumps({"pid": seat.pid, "port": seat.port}))
    draft.replace(home / SEAT)


def _read_seat(home: Path) -> _Seat | None:
    """The published seat; None when there is none or its file is damaged."""
    try:
        told = json.loads((home / SEAT).read_text())
        return _Seat(int(told["pid"]), int(told["port"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _last_words(home: Path) -> str:
    """The last line of the server's log."""
    try:
        lines = (home / LOG).read_text(errors="replace").split("\n")
    except OSError:
        lines = []
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")


def _free_ports() -> Iterator[int]:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        yield port


def _poll(attempt: Callable[[], Found], patience_s: float) -> Found:
    """The first result that counts, or the last one when patience ends."""
    deadline = time.monotonic() + patience_s
    while not (found := attempt()) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return found

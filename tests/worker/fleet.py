"""A fleet to do terrible things to: a server that can be stopped and started again, and real processes on it.

Every child carries its fleet's mark in its environment, so that none outlives the test, not even the child of a child
whose parent was killed. What they log goes to files that `Fleet` shows when the test fails.
"""

import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from redis.exceptions import RedisError

from postroom.dispatcher import Dispatcher
from postroom.mailbox import fleet as registry
from postroom.mailbox import keys, ops
from postroom.mailbox.binary import find_binary
from postroom.mailbox.connect import connect, dial
from postroom.mailbox.contracts import RunRecord, RunRequest, message, parse
from postroom.mailbox.lock import Holder, holder
from postroom.mailbox.server import CONFIGURATION
from postroom.mailbox.settings import Settings
from tests.waiting import until

ROOT = Path(__file__).parents[2]
APP = "tests.worker.fleet_app:app"
MARK = "POSTROOM_TEST_FLEET"
LONG = os.environ.get("POSTROOM_CHAOS") == "long"
# Short leases make short tests; nothing else about them is special.
QUICK = {"lease_ms": 2_000, "heartbeat_ms": 500, "sweep_ms": 200}


class Server:
    """A server in a directory, on a port that it gets back each time it starts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None
        (home / "server.conf").write_text(CONFIGURATION.format(port=self.port))

    def start(self) -> None:
        """Starts it and waits until it has loaded what it knew."""
        self.process = subprocess.Popen([find_binary(), "server.conf"], cwd=self.home, start_new_session=True)
        until(self._answers, 20, "the server answers")

    def _answers(self) -> bool:
        try:
            with dial(self.url, timeout=1) as client:
                return bool(client.ping())
        except RedisError:
            return False

    def stop(self) -> None:
        """Stops it as an operator would; what it acknowledged is on disk."""
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def kill(self) -> None:
        """As a crash would."""
        assert self.process
        self.process.kill()
        self.process.wait()

    @property
    def written(self) -> Path:
        """What it writes its facts to."""
        return max((self.home / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


@dataclass(eq=False)
class Child:
    """A process of the fleet."""

    title: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a crash would: nobody gets to say goodbye."""
        self.process.kill()
        self.process.wait()

    def exit_code(self, within: float = 10.0) -> int:
        """How it ended, once it has."""
        until(lambda: self.process.poll() is not None, within, f"{self.title} ends")
        return self.process.returncode

    def stop(self, within: float = 15.0) -> int:
        self.signal(signal.SIGTERM)
        return self.exit_code(within)

    def said(self) -> str:
        return self.log.read_text(errors="replace")


class Fleet:
    """Processes on one queue of one server."""

    def __init__(self, url: str, home: Path, **settings: int) -> None:
        self.url, self.home = url, home
        self.tag = uuid.uuid4().hex[:10]
        self.queue = f"q-{self.tag}"
        self.settings = Settings(**{**QUICK, **settings})  # type: ignore[arg-type]
        environ = {f"POSTROOM_{name.upper()}": str(value) for name, value in {**QUICK, **settings}.items()}
        self.environ = {**os.environ, **environ, MARK: self.tag}
        self.app = APP
        self.place = ["--url", url]
        self.children: list[Child] = []
        self.ids = 0
        self.reconnect()

    def reconnect(self) -> None:
        """Clients of the test itself; those of before a restart hold dead connections."""
        self.client: Any = connect(self.url)
        self.dispatcher = Dispatcher(self.url, self.settings)

    # -- processes -------------------------------------------------------------------------------------------------

    def start(self, *arguments: str, title: str, url: str | None = None) -> Child:
        place = ["--url", url] if url else self.place
        log = self.home / f"{len(self.children):03d}-{title}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "postroom.worker", *arguments, *place, "--verbose"],
                cwd=ROOT,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        child = Child(title, process, log)
        self.children.append(child)
        return child

    def worker(self, *, concurrency: int = 64, url: str | None = None) -> Child:
        """One worker, up and consuming; its title is its name. With a URL it goes to the server by that way."""
        return self.workers(1, concurrency=concurrency, url=url)[0]

    def workers(self, count: int, *, concurrency: int = 64, url: str | None = None) -> list[Child]:
        """Several, started at the same time."""
        names = [f"w{len(self.children) + i}-{self.tag}" for i in range(count)]
        started = [self.start(*self._serving(concurrency), "--name", name, title=name, url=url) for name in names]
        for name in names:
            until(lambda name=name: self.client.exists(registry.worker_key(name)), 20, f"{name} is up")  # type: ignore[misc]
        return started

    def supervised(
        self, processes: int, *, verb: str = "worker", concurrency: int = 64, url: str | None = None
    ) -> Child:
        """Workers under a supervisor, all of them up; `verb` may be `up`, which adds a dispatcher."""
        options = [*self._serving(concurrency)[1:], "--processes", str(processes)]
        child = self.start(verb, *options, title="supervisor", url=url)
        until(lambda: len(self.alive()) == processes, 30, f"{processes} workers are up")
        return child

    def sweeper(self) -> Child:
        """A dispatcher process, up and ready to sweep."""
        child = self.start("dispatcher", title="dispatcher")
        until(lambda: "standing by" in child.said(), 20, "the dispatcher is up")
        return child

    def _serving(self, concurrency: int) -> list[str]:
        return ["worker", "--app", self.app, "--queues", self.queue, "--concurrency", str(concurrency)]

    def alive(self) -> dict[str, int]:
        """Workers of this fleet that beat and whose process is there: name and pid."""
        names = ops.run(self.client, registry.names())
        pulses = registry.alive(ops.run_all(self.client, [registry.pulse(name) for name in names]))
        mine = {each.name: int(each.fields["pid"]) for each in pulses if each.fields["queues"] == self.queue.encode()}
        return {name: pid for name, pid in mine.items() if _breathes(pid)}

    # -- runs ------------------------------------------------------------------------------------------------------

    def thread(self) -> str:
        self.ids += 1
        return f"t{self.ids}-{self.tag}"

    def request(self, script: list[Any], thread: str | None = None, **more: Any) -> RunRequest:
        self.ids += 1
        run_id = f"r{self.ids}-{self.tag}"
        given = {"run_id": run_id, "thread_id": thread or self.thread(), "agent": "clerk", "queue": self.queue}
        asked = {"messages": (message("user", f"begin {run_id}"),), "metadata": {"script": script}}
        return parse(RunRequest, {"on_waiting": "enqueue", **given, **asked, **more})

    def submit(self, script: list[Any], thread: str | None = None, **more: Any) -> RunRequest:
        """Submits a run that follows the script."""
        request = self.request(script, thread, **more)
        self.submit_all([request])
        return request

    def submit_all(self, requests: list[RunRequest]) -> None:
        for outcome in self.dispatcher.submit_many(requests):
            if isinstance(outcome, BaseException):
                raise outcome

    def run(self, request: RunRequest) -> RunRecord:
        return self.dispatcher.get_run(request.run_id)

    def status(self, request: RunRequest) -> str:
        return self.run(request).status.value

    def statuses(self, requests: Iterable[RunRequest]) -> list[str]:
        commands: list[ops.Op[str]] = [
            ops.Op(("HGET", keys.run(each.thread_id, each.run_id), "status"), _text) for each in requests
        ]
        return ops.run_all(self.client, commands)

    def all_done(self, requests: Iterable[RunRequest]) -> bool:
        return set(self.statuses(requests)) == {"done"}

    def holder(self, request: RunRequest) -> Holder | None:
        return ops.run(self.client, holder(request.thread_id))

    def held(self, request: RunRequest, within: float = 10.0) -> Holder:
        """Who works on the run, once somebody does."""
        found = until(lambda: self.holder(request), within, f"{request.run_id} is taken up", every=0.002)
        assert found
        return found

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends every process that carries this fleet's mark."""
        for child in self.children:
            with suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGCONT)
                child.process.kill()
            child.process.wait()
        until(lambda: not [_kill(pid) for pid in marked(self.tag)], 10, "no child is left")
        self.dispatcher.close()
        self.client.close()

    def show(self) -> str:
        """The end of every log."""
        return "\n".join(f"--- {each.log.name}\n{each.said()[-4_000:]}" for each in self.children)


@contextmanager
def running(url: str, home: Path, **settings: int) -> Iterator[Fleet]:
    """A fleet that is gone afterwards, and tells what it logged if the test fails."""
    fleet = Fleet(url, home, **settings)
    try:
        yield fleet
    except BaseException:
        sys.stderr.write(fleet.show())
        raise
    finally:
        fleet.close()


def report(what: str, seconds: list[float]) -> None:
    """Figures for whoever runs pytest with -s, as `make chaos` does."""
    p50, p99 = percentile(seconds, 0.5) * 1000, percentile(seconds, 0.99) * 1000
    sys.stdout.write(
        f"\n{what}: n={len(seconds)} p50 {p50:.0f} ms, p99 {p99:.0f} ms, max {max(seconds) * 1000:.0f} ms\n"
    )


class FleetOn(Protocol):
    """Makes a fleet on a server of your choice, with settings of your choice."""

    def __call__(self, url: str, **settings: int) -> AbstractContextManager[Fleet]: ...


def percentile(values: list[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _text(reply: bytes | None) -> str:
    return reply.decode() if reply else ""


def _breathes(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def marked(tag: str) -> Iterator[int]:
    """Every process of the fleet with this tag, children of children too."""
    wanted = f"{MARK}={tag}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                yield int(place.name)


def _kill(pid: int) -> int:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return pid

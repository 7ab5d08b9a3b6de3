"""The commands that run processes or an app: `up`, `worker`, `dispatcher`, `server`, `replay`; others are added."""

import argparse
import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from postroom.dispatcher import commands
from postroom.dispatcher.answers import say, url_of
from postroom.dispatcher.arguments import count
from postroom.mailbox.connect import address
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.guests import working
from postroom.mailbox.keys import check_name, check_token
from postroom.mailbox.server import EmbeddedServer
from postroom.mailbox.settings import Settings
from postroom.worker import agent_commands
from postroom.worker.app import App
from postroom.worker.leaving import LOOK_S, attended
from postroom.worker.loading import load

T = TypeVar("T")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    parser, verbs = commands.parser()
    _add_server(verbs)
    _add_dispatcher(verbs)
    _add_worker(verbs)
    _add_up(verbs)
    _add_replay(verbs)
    agent_commands.add(verbs)
    return commands.execute(parser, argv)


def _add_server(verbs: Any) -> None:
    server = verbs.add_parser("server", help="run the embedded server in the foreground")
    server.set_defaults(run=_server)


def _add_dispatcher(verbs: Any) -> None:
    dispatcher = verbs.add_parser("dispatcher", help="run a dispatcher: it sweeps the watch list")
    dispatcher.set_defaults(run=_dispatcher)


def _add_worker(verbs: Any) -> None:
    worker = verbs.add_parser("worker", help="run workers")
    _fleet_options(worker)
    worker.add_argument("--name", help=argparse.SUPPRESS)
    worker.set_defaults(run=_worker)


def _add_up(verbs: Any) -> None:
    up = verbs.add_parser("up", help="run everything: server if none is given, dispatcher and workers")
    _fleet_options(up)
    up.set_defaults(run=_up)


def _add_replay(verbs: Any) -> None:
    replay = verbs.add_parser("replay", help="take a finished run through the loop once more and compare")
    replay.add_argument("run_id", metavar="RUN")
    replay.add_argument("--app", help="module:app that served it (default $POSTROOM_APP)")
    replay.set_defaults(run=_replay)


def _fleet_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--app", help="module:app to serve (default $POSTROOM_APP)")
    parser.add_argument(
        "--queues", default="default", help="queues to take from, the most urgent first (default default)"
    )
    parser.add_argument("--concurrency", type=count, default=256, help="runs at a time in one process (default 256)")
    parser.add_argument("--processes", type=count, default=1, help="worker processes (default 1)")


def _server(given: argparse.Namespace) -> int:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with working(given.settings) as server:
        say(
            given,
            {"url": server.url, "pid": server.pid, "owned": server.owned},
            f"server at {server.url} (pid {server.pid})",
        )
        while server.owned and not ended.wait(LOOK_S):
            if not server.lives():
                raise server.gone()
    return 0


def _dispatcher(given: argparse.Namespace) -> int:
    from postroom.dispatcher.service import Service

    with _address(given.settings) as (url, server):
        return _run(attended(Service(url, given.settings), server))


def _worker(given: argparse.Namespace) -> int:
    from postroom.worker.process import Worker, new_name
    from postroom.worker.supervisor import Supervisor

    settings, queues, app = _fleet(given)
    name = check_token(given.name, "worker name") if given.name else new_name()
    with _address(settings) as (url, server):
        if given.processes > 1:
            return _run(attended(Supervisor(url, settings, [_worker_role(given)] * given.processes), server))
        # Its loop is never closed: that would wait for tasks and threads which do not end. The process ends (`entry`).
        return _runner().run(attended(Worker(url, app, settings, queues, given.concurrency, name), server))


def _up(given: argparse.Namespace) -> int:
    from postroom.worker.supervisor import Role, Supervisor, python

    settings, *_ = _fleet(given)
    with _address(settings) as (url, server):
        where = address(url)
        say(given, {"url": where}, f"postroom is up on {where}; submit with: postroom submit AGENT TEXT")
        sweeper = Role("dispatcher", lambda name: python("dispatcher", *_verbose(given)))
        return _run(attended(Supervisor(url, settings, [sweeper, *[_worker_role(given)] * given.processes]), server))


def _replay(given: argparse.Namespace) -> int:
    from postroom.worker.replay import replay

    app = load(_place(given))
    report = _run(replay(url_of(given.settings), given.settings, app, given.run_id))
    words = f"{report.messages} messages in {report.steps} steps, {report.termination}"
    lines = [f"{'same' if report.same else 'different'}: {words}", *report.differences, *report.notes]
    say(given, report, "\n".join(lines))
    return 0 if report.same else 1


def _fleet(given: argparse.Namespace) -> tuple[Settings, list[str], App]:
    settings: Settings = given.settings
    given.app = _place(given)
    queues = [check_name(queue.strip(), "queue") for queue in given.queues.split(",")]
    # Found out here, once and in one line, rather than by every child for itself.
    from postroom.worker.model import resolve as models

    app = load(given.app)
    models.default()
    return settings, queues, app


def _place(given: argparse.Namespace) -> str:
    place: str | None = given.app or given.settings.app
    if not place:
        raise InvalidInput("which app? give --app module:app or set POSTROOM_APP")
    return place


def _worker_role(given: argparse.Namespace) -> Any:
    from postroom.worker.supervisor import Role, python

    def command(name: str) -> list[str]:
        options = ["--app", given.app, "--queues", given.queues, "--concurrency", str(given.concurrency)]
        return python("worker", *options, "--name", name, *_verbose(given))

    return Role("worker", command)


def _verbose(given: argparse.Namespace) -> list[str]:
    return ["--verbose"] if given.verbose else []


@contextmanager
def _address(settings: Settings) -> Iterator[tuple[str, EmbeddedServer | None]]:
    """The server given, or the embedded one for as long as the command runs."""
    if settings.redis_url:
        yield settings.redis_url, None
        return
    with working(settings) as server:
        yield server.url, server


def _run(main: Coroutine[Any, Any, T]) -> T:
    with _runner() as runner:
        return runner.run(main)


def _runner() -> asyncio.Runner:
    try:
        import uvloop
    except ImportError:  # a platform without uvloop
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)

"""The `postroom` command: a user's mistake is one line and exit code 2, never a traceback."""

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from postroom.mailbox.connect import connect
from postroom.mailbox.errors import PostroomError
from postroom.mailbox.server import start
from postroom.mailbox.settings import Settings


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    given = _parser().parse_args(argv)
    try:
        code: int = given.run(given)
        return code
    except PostroomError as error:
        sys.stderr.write(f"postroom: {error.message}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="postroom", description="A worker fleet for AI agents that needs only Redis.")
    parser.add_argument("--version", action="version", version=f"postroom {version('postroom')}")
    commands = parser.add_subparsers(required=True, metavar="command")
    server = commands.add_parser("server", help="run the embedded server in the foreground until Ctrl-C")
    server.add_argument("--data-dir", type=Path, help="where it keeps its data (default .postroom)")
    server.set_defaults(run=_server)
    check = commands.add_parser("check", help="say whether the server in use can be trusted with runs")
    check.set_defaults(run=_check)
    return parser


def _server(given: argparse.Namespace) -> int:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with start(Settings.from_env(data_dir=given.data_dir)) as server:
        how = "started" if server.owned else "found running"
        sys.stdout.write(f"server {how}: {server.url} (pid {server.pid})\n")
        sys.stdout.flush()
        if server.owned:
            ended.wait()
    return 0


def _check(given: argparse.Namespace) -> int:
    settings = Settings.from_env()
    if settings.redis_url:
        connect(settings.redis_url).close()
        sys.stdout.write("the server is fit for use\n")
        return 0
    with start(settings) as server:
        connect(server.url).close()
        sys.stdout.write(f"the embedded server is fit for use: {server.url}\n")
    return 0

"""The command line, and the commands that act: submit, tail, cancel, interrupt, decide, retry, send.

A user's mistake is one line on stderr and exit code 2; `--json` makes every answer one JSON value per line.
"""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from postroom.dispatcher import deciding, views
from postroom.dispatcher.answers import client_of, plain, print_line, say, say_wrong
from postroom.dispatcher.arguments import Parser, json_object, seconds, whole
from postroom.dispatcher.client import Dispatcher
from postroom.dispatcher.terminal import show_events
from postroom.mailbox.connect import address, explained
from postroom.mailbox.contracts import OnBusy
from postroom.mailbox.entry import INTERRUPTED
from postroom.mailbox.errors import InvalidInput, PostroomError
from postroom.mailbox.settings import Settings


def parser() -> tuple[Parser, Any]:
    """The command line, and the place where other commands are added."""
    root = Parser(prog="postroom", description="A worker fleet for AI agents that needs only Redis.")
    root.add_argument("--version", action="version", version=f"postroom {version('postroom')}")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--url", help="server to use (default $POSTROOM_REDIS_URL, else the embedded one)")
    shared.add_argument("--data-dir", type=Path, help="the embedded server's data (default .postroom)")
    shared.add_argument("--json", action="store_true", help="answer in JSON, one value per line")
    shared.add_argument("--verbose", action="store_true", help="log what happens")
    verbs = _Verbs(root.add_subparsers(required=True, metavar="command"), shared)
    for add in (_add_submit, _add_tail, _add_control, _add_mail, _add_fork, views.add):
        add(verbs)
    return root, verbs


def execute(root: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Runs the command; what a user did wrong is told in one line."""
    given = root.parse_args(argv)
    logging.basicConfig(
        level=logging.INFO if given.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        given.settings = Settings.from_env(redis_url=given.url, data_dir=given.data_dir)
        code: int = given.run(given)
        return code
    except PostroomError as error:
        return say_wrong(given, error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except (RedisError, OSError) as error:
        return say_wrong(given, _ours(given, error))


def _ours(given: argparse.Namespace, error: RedisError | OSError) -> PostroomError:
    """The one place where what others raise while a command runs becomes an error of ours."""
    if isinstance(error, OSError) and error.filename is not None:
        return InvalidInput(f"{error.filename}: {error.strerror}")
    url = given.settings.redis_url
    return explained(error, address(url) if url else str(given.settings.data_dir))


class _Verbs:
    """Adds subcommands that all share the same options."""

    def __init__(self, place: Any, shared: argparse.ArgumentParser) -> None:
        self._place, self._shared = place, shared

    def add_parser(self, name: str, **more: Any) -> argparse.ArgumentParser:
        """A subcommand."""
        added: argparse.ArgumentParser = self._place.add_parser(name, parents=[self._shared], **more)
        return added


def _add_submit(verbs: _Verbs) -> None:
    submit = verbs.add_parser("submit", help="submit a run")
    submit.add_argument("agent", help="agent to serve it")
    submit.add_argument("text", help="what the user says")
    submit.add_argument("--thread", help="conversation (default: a new one)")
    submit.add_argument("--on-busy", choices=[mode.value for mode in OnBusy], default="enqueue")
    submit.add_argument("--key", help="idempotency key")
    submit.add_argument("--queue", default="default")
    submit.add_argument("--priority", type=whole, default=128, help="0 is the most urgent, 255 the least (default 128)")
    submit.add_argument("--delay", type=seconds, help="seconds until it may start")
    submit.add_argument("--timeout", type=seconds, help="seconds until it must have ended")
    submit.add_argument("--metadata", type=json_object, help="JSON object to keep with the run")
    submit.add_argument("--tenant")
    submit.add_argument("--webhook", help="URL to tell when the run ends or waits")
    submit.add_argument("--follow", action="store_true", help="show its events until it ends")
    submit.set_defaults(run=_submit)


def _submit(given: argparse.Namespace) -> int:
    with client_of(given) as client:
        done = client.submit(
            given.agent,
            given.text,
            thread=given.thread,
            on_busy=given.on_busy,
            idempotency_key=given.key,
            queue=given.queue,
            priority=given.priority,
            delay_ms=None if given.delay is None else int(given.delay * 1000),
            timeout_ms=None if given.timeout is None else int(given.timeout * 1000),
            metadata=given.metadata,
            tenant=given.tenant,
            webhook=given.webhook,
        )
        say(given, done, f"{done.outcome} {done.run_id}")
        return _follow(given, client, done.run_id, 0) if given.follow else 0


def _add_tail(verbs: _Verbs) -> None:
    tail = verbs.add_parser("tail", help="show a run's events until it ends")
    tail.add_argument("run_id", metavar="RUN")
    tail.add_argument("--after", type=whole, default=0, help="number of the last event already seen")
    tail.add_argument("--no-follow", action="store_true", help="only what there is")
    tail.set_defaults(run=_tail)


def _tail(given: argparse.Namespace) -> int:
    with client_of(given) as client:
        return _follow(given, client, given.run_id, given.after, live=not given.no_follow)


def _follow(given: argparse.Namespace, client: Dispatcher, run_id: str, after: int, *, live: bool = True) -> int:
    entries = client.events(run_id, after, live=live)
    if given.json:
        for entry in entries:
            print_line(json.dumps(plain(entry), ensure_ascii=False))
        return 0
    return show_events(entries)


def _add_control(verbs: _Verbs) -> None:
    cancel = verbs.add_parser("cancel", help="cancel a run, or what a thread is doing")
    cancel.add_argument("target", metavar="RUN|THREAD")
    cancel.set_defaults(run=_cancel)
    interrupt = verbs.add_parser("interrupt", help="clear a thread: queued runs superseded, the open one stopped")
    interrupt.add_argument("thread")
    interrupt.set_defaults(run=_interrupt)
    decide = verbs.add_parser("decide", help="answer a ticket, or several of a run")
    decide.add_argument("run_id", metavar="RUN")
    deciding.add_options(decide)
    decide.set_defaults(run=_decide)
    retry = verbs.add_parser("retry", help="submit the request of an ended run once more")
    retry.add_argument("run_id", metavar="RUN")
    retry.set_defaults(run=_retry)


def _cancel(given: argparse.Namespace) -> int:
    with client_of(given) as client:
        done = client.cancel(given.target)
    say(given, done, f"{done.outcome} {done.run_id}")
    return 0


def _interrupt(given: argparse.Namespace) -> int:
    with client_of(given) as client:
        done = client.interrupt(given.thread)
    say(
        given,
        done,
        f"epoch {done.epoch}: ended {', '.join(done.ended) or 'nothing'}; open was {done.open or 'nothing'}",
    )
    return 0


def _decide(given: argparse.Namespace) -> int:
    decisions = deciding.decisions_of(given)
    with client_of(given) as client:
        done = client.decide_many(given.run_id, decisions)
    say(given, done, f"{done.outcome}; the run is {done.run_status}")
    return 0


def _retry(given: argparse.Namespace) -> int:
    with client_of(given) as client:
        done = client.retry(given.run_id)
    say(given, done, f"{done.outcome} {done.run_id}")
    return 0


def _add_mail(verbs: _Verbs) -> None:
    send = verbs.add_parser("send", help="put mail into a thread's mailbox")
    send.add_argument("thread")
    send.add_argument("text")
    send.add_argument("--agent", help="who serves the thread if it is new")
    send.add_argument("--sender", default="")
    send.add_argument("--id", help="the mail's own id: the same one twice is one")
    send.set_defaults(run=_send)


def _send(given: argparse.Namespace) -> int:
    with client_of(given) as client:
        done = client.send(given.thread, given.text, mail_id=given.id, sender=given.sender, agent=given.agent)
    say(given, done, f"{done.outcome} as number {done.number}, for run {done.run_id}")
    return 0


def _add_fork(verbs: _Verbs) -> None:
    fork = verbs.add_parser("fork", help="begin a new thread from any point of another one")
    fork.add_argument("thread")
    fork.add_argument("--at", type=whole, help="the last sequence number to take over (default: all)")
    fork.add_argument("--run", dest="run_id", metavar="RUN", help="take over up to the end of this run")
    fork.add_argument("--step", type=whole, help="take over up to the end of this step of the run")
    fork.add_argument("--to", help="the new thread's id (default: a new one)")
    fork.add_argument("--agent", help="who serves it (default: as before)")
    fork.add_argument("--grants", action="store_true", help="take along what was allowed for good by then")
    fork.set_defaults(run=_fork)


def _fork(given: argparse.Namespace) -> int:
    with client_of(given) as client:
        done = client.fork(
            given.thread,
            at=given.at,
            run=given.run_id,
            step=given.step,
            to=given.to,
            agent=given.agent,
            grants=given.grants,
        )
    words = f"{done.messages} messages up to {done.at}, state: {done.state}"
    say(given, done, f"{done.outcome} {done.thread_id} from {done.parent}: {words}")
    return 0

"""The commands that talk to a fleet: submit, runs, threads, tail, cancel, decide, send, dead, stats, inspect, doctor.

A user's mistake is one line on stderr and exit code 2; `--json` makes every answer one JSON value per line.
"""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from postroom.dispatcher import doctor
from postroom.dispatcher.client import Dispatcher
from postroom.dispatcher.terminal import show_events, table
from postroom.mailbox import keys
from postroom.mailbox.contracts import DecisionAction, OnBusy
from postroom.mailbox.errors import PostroomError
from postroom.mailbox.lifecycle import RunStatus
from postroom.mailbox.settings import Settings


def parser() -> tuple[argparse.ArgumentParser, Any]:
    """The command line, and the place where other commands are added."""
    root = argparse.ArgumentParser(prog="postroom", description="A worker fleet for AI agents that needs only Redis.")
    root.add_argument("--version", action="version", version=f"postroom {version('postroom')}")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--url", help="server to use (default $POSTROOM_REDIS_URL, else the embedded one)")
    shared.add_argument("--data-dir", type=Path, help="the embedded server's data (default .postroom)")
    shared.add_argument("--json", action="store_true", help="answer in JSON, one value per line")
    shared.add_argument("--verbose", action="store_true", help="log what happens")
    verbs = _Verbs(root.add_subparsers(required=True, metavar="command"), shared)
    for add in (_add_submit, _add_lists, _add_tail, _add_control, _add_mail, _add_dead, _add_insight):
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
        if given.json:
            print_line(json.dumps({"error": error.as_dict()}))
        sys.stderr.write(f"postroom: {error.message}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def say(given: argparse.Namespace, value: Any, words: str) -> None:
    """An answer, for people or for programs."""
    print_line(json.dumps(plain(value), ensure_ascii=False) if given.json else words)


def print_line(words: str) -> None:
    """A line on standard output, at once, so that a pipe sees it."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """Any answer as JSON would have it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {str(plain(name)): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class _Verbs:
    """Adds subcommands that all share the same options."""

    def __init__(self, place: Any, shared: argparse.ArgumentParser) -> None:
        self._place, self._shared = place, shared

    def add_parser(self, name: str, **more: Any) -> argparse.ArgumentParser:
        """A subcommand."""
        added: argparse.ArgumentParser = self._place.add_parser(name, parents=[self._shared], **more)
        return added


def _client(given: argparse.Namespace) -> Dispatcher:
    return Dispatcher(settings=given.settings)


# -- submit, tail ----------------------------------------------------------------


def _add_submit(verbs: _Verbs) -> None:
    submit = verbs.add_parser("submit", help="submit a run")
    submit.add_argument("agent", help="agent to serve it")
    submit.add_argument("text", help="what the user says")
    submit.add_argument("--thread", help="conversation (default: a new one)")
    submit.add_argument("--on-busy", choices=[mode.value for mode in OnBusy], default="enqueue")
    submit.add_argument("--key", help="idempotency key")
    submit.add_argument("--queue", default="default")
    submit.add_argument("--priority", type=int, default=128, help="0 is the most urgent, 255 the least (default 128)")
    submit.add_argument("--delay", type=float, help="seconds until it may start")
    submit.add_argument("--timeout", type=float, help="seconds until it must have ended")
    submit.add_argument("--metadata", type=json.loads, help="JSON object to keep with the run")
    submit.add_argument("--tenant")
    submit.add_argument("--follow", action="store_true", help="show its events until it ends")
    submit.set_defaults(run=_submit)


def _submit(given: argparse.Namespace) -> int:
    with _client(given) as client:
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
        )
        say(given, done, f"{done.outcome} {done.run_id}")
        return _follow(given, client, done.run_id, 0) if given.follow else 0


def _add_tail(verbs: _Verbs) -> None:
    tail = verbs.add_parser("tail", help="show a run's events until it ends")
    tail.add_argument("run_id", metavar="RUN")
    tail.add_argument("--after", type=int, default=0, help="number of the last event already seen")
    tail.add_argument("--no-follow", action="store_true", help="only what there is")
    tail.set_defaults(run=_tail)


def _tail(given: argparse.Namespace) -> int:
    with _client(given) as client:
        return _follow(given, client, given.run_id, given.after, live=not given.no_follow)


def _follow(given: argparse.Namespace, client: Dispatcher, run_id: str, after: int, *, live: bool = True) -> int:
    entries = client.events(run_id, after, live=live)
    if given.json:
        for entry in entries:
            print_line(json.dumps(plain(entry), ensure_ascii=False))
        return 0
    return show_events(entries)


# -- listings ----------------------------------------------------------------


def _add_lists(verbs: _Verbs) -> None:
    runs = verbs.add_parser("runs", help="list runs, newest first")
    runs.add_argument("--status", choices=[status.value for status in RunStatus])
    runs.add_argument("--agent")
    runs.add_argument("--thread")
    runs.add_argument("--tenant")
    runs.set_defaults(run=_runs)
    threads = verbs.add_parser("threads", help="list threads, the latest active first")
    threads.set_defaults(run=_threads)
    for each in (runs, threads):
        each.add_argument("--limit", type=int, default=50)
        each.add_argument("--cursor", help="where the page before ended")


def _runs(given: argparse.Namespace) -> int:
    with _client(given) as client:
        page = client.list_runs(
            status=given.status,
            agent=given.agent,
            thread=given.thread,
            tenant=given.tenant,
            limit=given.limit,
            cursor=given.cursor,
        )
    return _page(given, page, ["run_id", "thread_id", "agent", "status", "step", "attempts", "worker"])


def _threads(given: argparse.Namespace) -> int:
    with _client(given) as client:
        page = client.list_threads(limit=given.limit, cursor=given.cursor)
    return _page(given, page, ["thread_id", "agent", "open", "last", "seq", "epoch", "fence"])


def _page(given: argparse.Namespace, page: Any, columns: list[str]) -> int:
    if given.json:
        for item in page.items:
            print_line(json.dumps(plain(item), ensure_ascii=False))
    else:
        table(columns, [[plain(item).get(column, "") for column in columns] for item in page.items])
    if page.cursor:
        sys.stderr.write(f"more: --cursor {page.cursor}\n")
    return 0


# -- control ----------------------------------------------------------------


def _add_control(verbs: _Verbs) -> None:
    cancel = verbs.add_parser("cancel", help="cancel a run, or what a thread is doing")
    cancel.add_argument("target", metavar="RUN|THREAD")
    cancel.set_defaults(run=_cancel)
    interrupt = verbs.add_parser("interrupt", help="clear a thread: queued runs superseded, the open one stopped")
    interrupt.add_argument("thread")
    interrupt.set_defaults(run=_interrupt)
    decide = verbs.add_parser("decide", help="answer a ticket")
    decide.add_argument("run_id", metavar="RUN")
    decide.add_argument("target", metavar="TICKET|CALL")
    decide.add_argument("action", choices=[action.value for action in DecisionAction])
    decide.add_argument("--reason")
    decide.add_argument("--by")
    decide.add_argument("--id", help="the decision's own id: the same one twice is one")
    decide.set_defaults(run=_decide)
    retry = verbs.add_parser("retry", help="submit the request of an ended run once more")
    retry.add_argument("run_id", metavar="RUN")
    retry.set_defaults(run=_retry)


def _cancel(given: argparse.Namespace) -> int:
    with _client(given) as client:
        done = client.cancel(given.target)
    say(given, done, f"{done.outcome} {done.run_id}")
    return 0


def _interrupt(given: argparse.Namespace) -> int:
    with _client(given) as client:
        done = client.interrupt(given.thread)
    say(
        given,
        done,
        f"epoch {done.epoch}: ended {', '.join(done.ended) or 'nothing'}; open was {done.open or 'nothing'}",
    )
    return 0


def _decide(given: argparse.Namespace) -> int:
    with _client(given) as client:
        done = client.decide(
            given.run_id, given.target, given.action, decision_id=given.id, reason=given.reason, by=given.by
        )
    say(given, done, f"{done.outcome}; the run is {done.run_status}")
    return 0


def _retry(given: argparse.Namespace) -> int:
    with _client(given) as client:
        done = client.retry(given.run_id)
    say(given, done, f"{done.outcome} {done.run_id}")
    return 0


# -- mail ----------------------------------------------------------------


def _add_mail(verbs: _Verbs) -> None:
    send = verbs.add_parser("send", help="put mail into a thread's mailbox")
    send.add_argument("thread")
    send.add_argument("text")
    send.add_argument("--agent", help="who serves the thread if it is new")
    send.add_argument("--sender", default="")
    send.add_argument("--id", help="the mail's own id: the same one twice is one")
    send.set_defaults(run=_send)


def _send(given: argparse.Namespace) -> int:
    with _client(given) as client:
        done = client.send(given.thread, given.text, mail_id=given.id, sender=given.sender, agent=given.agent)
    say(given, done, f"{done.outcome} as number {done.number}, for run {done.run_id}")
    return 0


# -- the dead ----------------------------------------------------------------


def _add_dead(verbs: _Verbs) -> None:
    dead = verbs.add_parser("dead", help="runs given up: list, retry or drop them")
    dead.add_argument("do", choices=["list", "retry", "drop"])
    dead.add_argument("run_id", metavar="RUN", nargs="?")
    dead.set_defaults(run=_dead)


def _dead(given: argparse.Namespace) -> int:
    with _client(given) as client:
        if given.do == "list":
            return _page(given, client.list_runs(dead=True, limit=200), ["run_id", "thread_id", "agent", "attempts"])
        names = [given.run_id] if given.run_id else [run.run_id for run in client.list_runs(dead=True, limit=200).items]
        for name in names:
            if given.do == "retry":
                done = client.retry(name)
                say(given, done, f"{name} goes on as {done.run_id}")
            else:
                say(given, {"dropped": client.drop_dead(name), "run_id": name}, f"dropped {name}")
    return 0


# -- insight ----------------------------------------------------------------


def _add_insight(verbs: _Verbs) -> None:
    stats = verbs.add_parser("stats", help="the fleet in numbers")
    stats.set_defaults(run=_stats)
    inspect = verbs.add_parser("inspect", help="everything about a run or a thread, and the redis-cli lines for it")
    inspect.add_argument("target", metavar="RUN|THREAD")
    inspect.set_defaults(run=_inspect)
    check = verbs.add_parser("doctor", help="check server, settings, queues and workers, and say what to do")
    check.set_defaults(run=_doctor)


def _stats(given: argparse.Namespace) -> int:
    with _client(given) as client:
        found = client.stats()
    if given.json:
        print_line(json.dumps(plain(found), ensure_ascii=False))
        return 0
    print_line(f"runs {found.runs}, threads {found.threads}, watched {found.watched}, dead {found.dead}")
    table(["queue", "waiting"], [[name, count] for name, count in found.queues.items()])
    rows = [[pulse.name, *(pulse.fields.get(name, b"").decode() for name in _PULSE)] for pulse in found.workers]
    table(["worker", *_PULSE], rows)
    return 0


_PULSE = ["queues", "active", "slots", "answered", "beat"]


def _inspect(given: argparse.Namespace) -> int:
    with _client(given) as client:
        run = _run_or_none(client, given.target)
        thread_id = run.thread_id if run else given.target
        found: dict[str, Any] = {"thread": client.get_thread(thread_id), "holder": client.holder(thread_id)}
        if run:
            found |= {"run": run, "calls": client.calls(run.run_id)}
        else:
            found |= {"messages": client.messages(thread_id), "unread": client.unread(thread_id)}
    look = [f"HGETALL '{keys.thread(thread_id)}'", f"GET '{keys.lock(thread_id)}'"]
    look += (
        [f"HGETALL '{keys.run(thread_id, run.run_id)}'", f"XRANGE '{keys.events(thread_id, run.run_id)}' - +"]
        if run
        else []
    )
    if given.json:
        print_line(json.dumps(plain({**found, "redis": look}), ensure_ascii=False))
        return 0
    print_line(json.dumps(plain(found), ensure_ascii=False, indent=2))
    print_line("\nsee for yourself:")
    for line in look:
        print_line(f"  redis-cli {line}")
    return 0


def _run_or_none(client: Dispatcher, target: str) -> Any:
    try:
        return client.get_run(target)
    except PostroomError:
        return None


def _doctor(given: argparse.Namespace) -> int:
    with _client(given) as client:
        findings = doctor.examine(client)
    for finding in findings:
        say(given, finding, f"{'ok ' if finding.well else 'BAD'} {finding.what}: {finding.words}")
    return 0 if all(finding.well for finding in findings) else 1

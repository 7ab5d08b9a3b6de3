"""The commands that look: runs, threads, dead, webhooks, lost, stats, inspect, doctor."""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from postroom.dispatcher import doctor
from postroom.dispatcher.answers import client_of, plain, print_line, say, say_wrong, url_of
from postroom.dispatcher.arguments import whole
from postroom.dispatcher.client import Dispatcher
from postroom.dispatcher.listings import MOST_PER_PAGE, Page, ThreadStatus
from postroom.dispatcher.terminal import table
from postroom.mailbox import keys
from postroom.mailbox.errands import Lost
from postroom.mailbox.errors import NotFound, PostroomError
from postroom.mailbox.lifecycle import RunStatus


def add(verbs: Any) -> None:
    """Puts these commands on the command line."""
    for each in (_add_lists, _add_dead, _add_webhooks, _add_lost, _add_insight):
        each(verbs)


def _add_lists(verbs: Any) -> None:
    runs = verbs.add_parser("runs", help="list runs, newest first")
    runs.add_argument("--status", choices=[status.value for status in RunStatus])
    runs.add_argument("--agent")
    runs.add_argument("--thread")
    runs.add_argument("--tenant")
    runs.set_defaults(run=_runs)
    threads = verbs.add_parser("threads", help="list threads, the latest active first")
    threads.add_argument("--status", choices=[status.value for status in ThreadStatus])
    threads.add_argument("--agent")
    threads.set_defaults(run=_threads)
    for each in (runs, threads):
        each.add_argument("--limit", type=whole, default=50)
        each.add_argument("--cursor", help="where the page before ended")


def _runs(given: argparse.Namespace) -> int:
    with client_of(given) as client:
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
    with client_of(given) as client:
        page = client.list_threads(agent=given.agent, status=given.status, limit=given.limit, cursor=given.cursor)
    return _page(given, page, ["thread_id", "agent", "open", "last", "seq", "epoch", "fence"])


def _page(given: argparse.Namespace, page: Any, columns: list[str]) -> int:
    if given.json:
        # One value per line; the last one, which is no item, says that there is more.
        for value in [*page.items, *([{"cursor": page.cursor}] if page.cursor else [])]:
            print_line(json.dumps(plain(value), ensure_ascii=False))
        return 0
    table(columns, [[plain(item).get(column, "") for column in columns] for item in page.items])
    if page.cursor:
        sys.stderr.write(f"more: --cursor {page.cursor}\n")
    return 0


def _add_dead(verbs: Any) -> None:
    dead = verbs.add_parser("dead", help="runs given up: list, retry or drop them")
    dead.add_argument("do", choices=["list", "retry", "drop"])
    dead.add_argument("run_id", metavar="RUN", nargs="?")
    dead.set_defaults(run=_dead)


def _dead(given: argparse.Namespace) -> int:
    with client_of(given) as client:
        dead = _every(partial(client.list_runs, dead=True))
        if given.do == "list":
            return _page(given, Page([*dead], None), ["run_id", "thread_id", "agent", "attempts"])
        names = [given.run_id] if given.run_id else [run.run_id for run in dead]
        return max((_dead_one(given, client, name) for name in names), default=0)


def _every(listing: Callable[..., Page]) -> Iterator[Any]:
    """All that a listing has, page by page."""
    page = listing(limit=MOST_PER_PAGE)
    yield from page.items
    while page.cursor:
        page = listing(limit=MOST_PER_PAGE, cursor=page.cursor)
        yield from page.items


def _dead_one(given: argparse.Namespace, client: Dispatcher, name: str) -> int:
    """Retries or drops one of them; what is wrong with it keeps nobody from the others."""
    try:
        if given.do == "retry":
            done = client.retry_dead(name)
            say(given, done, f"{name} goes on as {done.run_id}")
        elif client.drop_dead(name):
            say(given, {"dropped": True, "run_id": name}, f"dropped {name}")
        else:
            raise NotFound(f"run {name!r} is not on the list of the dead; see: postroom dead list")
    except PostroomError as error:
        return say_wrong(given, error)
    return 0


def _add_webhooks(verbs: Any) -> None:
    webhooks = verbs.add_parser("webhooks", help="deliveries to webhooks that were given up: list, retry or drop them")
    webhooks.add_argument("do", choices=["list", "retry", "drop"])
    webhooks.add_argument("delivery_id", metavar="DELIVERY", nargs="?")
    webhooks.set_defaults(run=_webhooks)


def _webhooks(given: argparse.Namespace) -> int:
    with client_of(given) as client:
        undelivered = _every(client.list_undelivered)
        if given.do == "list":
            return _page(given, Page([*undelivered], None), ["id", "thread_id", "tries", "wrong"])
        listed = [given.delivery_id] if given.delivery_id else [each.id for each in undelivered]
        do, word = {"retry": (client.redeliver, "owed again"), "drop": (client.drop_delivery, "dropped")}[given.do]
        for name in listed:
            if not do(name):
                raise NotFound(f"no delivery {name!r} was given up; see: postroom webhooks list")
            say(given, {"delivery_id": name, "outcome": word}, f"{word} {name}")
    return 0


def _add_lost(verbs: Any) -> None:
    lost = verbs.add_parser("lost", help="what threads could not deliver to others: list, replay or clear it")
    lost.add_argument("do", choices=["list", "replay", "clear"])
    lost.add_argument("thread", metavar="THREAD", nargs="?", help="default: every thread that has some")
    lost.set_defaults(run=_lost)


def _lost(given: argparse.Namespace) -> int:
    with client_of(given) as client:
        threads = [given.thread] if given.thread else [*_every(client.list_stranded)]
        for thread in threads:
            if given.do == "list":
                for lost in client.list_lost(thread):
                    say(given, {"thread": thread, **plain(lost)}, f"{thread}: {_told(lost)}")
                continue
            do, word = {"replay": (client.replay_lost, "tried again"), "clear": (client.clear_lost, "dropped")}[
                given.do
            ]
            count = do(thread)
            say(given, {"thread": thread, "outcome": word, "count": count}, f"{thread}: {count} {word}")
    return 0


def _told(lost: Lost) -> str:
    return f"{lost.errand.kind} {lost.errand.id} to {lost.errand.to!r}: {lost.error}"


def _add_insight(verbs: Any) -> None:
    stats = verbs.add_parser("stats", help="the fleet in numbers")
    stats.set_defaults(run=_stats)
    inspect = verbs.add_parser("inspect", help="everything about a run or a thread, and the redis-cli lines for it")
    inspect.add_argument("target", metavar="RUN|THREAD")
    inspect.set_defaults(run=_inspect)
    check = verbs.add_parser("doctor", help="check server, settings, queues and workers, and say what to do")
    check.set_defaults(run=_doctor)


def _stats(given: argparse.Namespace) -> int:
    with client_of(given) as client:
        found = client.stats()
    if given.json:
        print_line(json.dumps(plain(found), ensure_ascii=False))
        return 0
    print_line(f"runs {found.runs}, threads {found.threads}, watched {found.watched}, dead {found.dead}")
    print_line(f"webhooks owed {found.owed}, given up {found.undelivered}; threads with lost errands {found.stranded}")
    table(["queue", "waiting"], [[name, count] for name, count in found.queues.items()])
    rows = [[pulse.name, *(pulse.fields.get(name, b"").decode() for name in _PULSE)] for pulse in found.workers]
    table(["worker", *_PULSE], rows)
    return 0


_PULSE = ["queues", "active", "slots", "answered", "beat"]


def _inspect(given: argparse.Namespace) -> int:
    with client_of(given) as client:
        run = _run_or_none(client, given.target)
        thread_id = run.thread_id if run else given.target
        found: dict[str, Any] = {"thread": client.get_thread(thread_id), "holder": client.holder(thread_id)}
        if run:
            found |= {"run": run, "calls": client.calls(run.run_id)}
        else:
            found |= {"messages": client.messages(thread_id), "unread": client.unread(thread_id)}
    look: list[tuple[str, ...]] = [("HGETALL", keys.thread(thread_id)), ("GET", keys.lock(thread_id))]
    if run:
        look.append(("HGETALL", keys.run(thread_id, run.run_id)))
        look.append(("XRANGE", keys.events(thread_id, run.run_id), "-", "+"))
    lines = [shlex.join(words) for words in look]
    if given.json:
        print_line(json.dumps(plain({**found, "redis": lines}), ensure_ascii=False))
        return 0
    print_line(json.dumps(plain(found), ensure_ascii=False, indent=2))
    print_line("\nsee for yourself:")
    for line in lines:
        print_line(f"  redis-cli {line}")
    return 0


def _run_or_none(client: Dispatcher, target: str) -> Any:
    try:
        return client.get_run(target)
    except PostroomError:
        return None


def _doctor(given: argparse.Namespace) -> int:
    findings = doctor.examine(url_of(given.settings), given.settings)
    for finding in findings:
        say(given, finding, f"{finding.mark} {finding.what}: {finding.words}")
    return 0 if all(finding.well for finding in findings) else 1

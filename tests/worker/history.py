"""What really happened, read from the journals and the logs alone: counters may lie, what was written cannot.

Each check returns what is wrong in words; a clean history returns nothing.
"""

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from postroom.dispatcher.doorbells import drop_abandoned
from postroom.mailbox import journal, keys, log, ops, scripts, watch
from postroom.mailbox.connect import connect_async
from postroom.mailbox.contracts import RunRequest
from postroom.mailbox.group import Group
from tests.worker.fleet import Fleet


def wrong(fleet: Fleet, requests: Iterable[RunRequest]) -> list[str]:
    """Everything that is wrong with runs that must all have come to their natural end."""
    threads: dict[str, list[RunRequest]] = defaultdict(list)
    for request in requests:
        threads[request.thread_id].append(request)
    found: list[str] = []
    for thread, runs in threads.items():
        entries = _log(fleet.client, thread)
        found += [f"{thread}: {what}" for what in (*_order(entries, runs), *_calls(entries), *left(fleet, thread))]
        for run in runs:
            events = _journal(fleet.client, run)
            said = [each for each in entries if each.run == run.run_id]
            found += [f"{run.run_id}: {what}" for what in (*_events(events, run), *_words(said, run))]
    return found + list(_doorbells(fleet))


def words_of(script: Iterable[Any]) -> list[str]:
    """What a script says when every step is taken exactly once."""
    replies = ({"say": each} if isinstance(each, str) else each for each in script)
    return [reply["say"] for reply in replies if reply.get("say")]


def _journal(client: Any, run: RunRequest) -> list[journal.Entry]:
    # Not by `journal.read`: a gap is a finding here, not an error.
    (raw,) = ops.exchange(client, [("XRANGE", keys.events(run.thread_id, run.run_id), "-", "+")])
    return journal.entries(raw)


def _log(client: Any, thread: str) -> list[log.Entry]:
    (raw,) = ops.exchange(client, [("XRANGE", keys.log(thread), "-", "+")])
    return [log.entry(each) for each in raw]


def _events(entries: list[journal.Entry], run: RunRequest) -> Iterator[str]:
    script = run.metadata["script"]
    assert isinstance(script, list)
    if [each.number for each in entries] != list(range(1, len(entries) + 1)):
        yield f"its events are not numbered 1 to {len(entries)}"
    kinds = [each.event["type"] for each in entries]
    if kinds.count("run_finish") != 1 or kinds[-1] != "run_finish":
        yield f"it has {kinds.count('run_finish')} terminal events and ends with {kinds[-1:]}"
    elif entries[-1].event["termination"] != "natural_end":
        yield f"it ended with {entries[-1].event}"
    for kind in ("step_start", "step_end"):
        steps = [each.event["step"] for each in entries if each.event["type"] == kind]
        # A run that was waiting for an answer takes one step more to read it.
        if steps[: len(script)] != list(range(1, len(script) + 1)) or len(steps) != len(set(steps)):
            yield f"its {kind} are {steps} for a script of {len(script)}"
    told = [each.event["delta"] for each in entries if each.event["type"] == "text_delta"]
    if told != words_of(script):
        yield f"it told {told} instead of {words_of(script)}"
    if [each.at for each in entries] != sorted(each.at for each in entries):
        yield "its events go back in time"


def _words(said: list[log.Entry], run: RunRequest) -> Iterator[str]:
    script = run.metadata["script"]
    assert isinstance(script, list)
    spoken = [_text(each) for each in said if each.message["role"] == "assistant" and each.message.get("content")]
    if spoken != words_of(script):
        yield f"the log has {spoken} instead of {words_of(script)}"
    heard = [_text(each) for each in said if each.message["role"] == "user"]
    if heard != [message.text for message in run.messages]:
        yield f"the log has the input {heard}"
    steps = [each.step for each in said]
    if steps != sorted(steps):
        yield f"its messages are of the steps {steps}"


def _order(entries: list[log.Entry], runs: list[RunRequest]) -> Iterator[str]:
    if [each.seq for each in entries] != list(range(1, len(entries) + 1)):
        yield f"its log is not numbered 1 to {len(entries)}"
    spoke = [run for run, _ in itertools.groupby(each.run for each in entries)]
    expected = [run.run_id for run in sorted(runs, key=lambda run: run.priority)]
    if spoke != expected:
        yield f"its runs spoke in the order {spoke} instead of {expected}"


def _calls(entries: list[log.Entry]) -> Iterator[str]:
    asked = Counter(call["id"] for each in entries for call in each.message.get("tool_calls", ()))
    visible = [each for each in entries if each.message.get("visibility") != "internal"]
    answered = Counter(each.message["tool_call_id"] for each in visible if each.message["role"] == "tool")
    if asked != answered:
        yield f"calls {dict(asked)} have the results {dict(answered)}"


def left(fleet: Fleet, thread: str) -> Iterator[str]:
    """What an idle thread should not have."""
    client = fleet.client
    if open_run := client.hget(keys.thread(thread), "open"):
        yield f"run {open_run.decode()} is open"
    for name in ("lock", "lane", "timers", "mailbox"):
        if client.exists(getattr(keys, name)(thread)):
            yield f"its {name} is left over"
    if (score := client.zscore(keys.WATCH, thread)) is not None:
        yield f"it is still on the watch list, for {score:.0f}"


def _doorbells(fleet: Fleet) -> Iterator[str]:
    """What is left of doorbells once those that died with their worker have counted as abandoned."""
    asyncio.run(_drop(fleet))
    if count := fleet.client.zcard(f"rq:wip:{fleet.queue}"):
        yield f"{count} doorbells count as started"


async def _drop(fleet: Fleet) -> None:
    client = await connect_async(fleet.url)
    group = Group(client)
    now = await group.run(watch.clock())
    await drop_abandoned(group, now + (scripts.ABANDONED_AFTER_S + 1) * 1000)
    await group.close()
    await client.aclose()


def _text(entry: log.Entry) -> str:
    return "".join(block.get("text", "") for block in entry.message.get("content", ()))

"""The checker is checked: each kind of tampering with a clean history is found."""

from collections.abc import Callable
from typing import Any

from postroom.mailbox import keys
from postroom.mailbox.contracts import RunRequest
from tests.waiting import until
from tests.worker import history
from tests.worker.fleet import Fleet

Tamper = Callable[[Any, RunRequest], object]


def _again(client: Any, key: str, wanted: bytes) -> None:
    """Repeats an entry of a stream at its end."""
    entries = client.xrange(key)
    fields = next(fields for _, fields in entries if wanted in fields.values())
    client.xadd(key, fields, id=f"{len(entries) + 1}-0")


def _events(run: RunRequest) -> str:
    return keys.events(run.thread_id, run.run_id)


def _tell(client: Any, run: RunRequest, kind: str) -> None:
    """Tells one more event behind the last."""
    ((last, _),) = client.xrevrange(_events(run), count=1)
    client.xadd(_events(run), {"at": 1, "type": kind, "step": 1}, id=f"{int(last.partition(b'-')[0]) + 1}-0")


def _cut(client: Any, run: RunRequest) -> None:
    """Takes the journal's first entry away."""
    ((first, _),) = client.xrange(_events(run), count=1)
    client.xdel(_events(run), first)


TAMPERING: dict[str, tuple[Tamper, str]] = {
    "a second end": (lambda client, run: _tell(client, run, "run_finish"), "2 terminal events"),
    "a step twice": (lambda client, run: _tell(client, run, "step_end"), "its step_end are"),
    "a gap": (_cut, "not numbered"),
    "words twice": (lambda client, run: _again(client, keys.log(run.thread_id), b"one"), "the log has"),
    "input twice": (lambda client, run: _again(client, keys.log(run.thread_id), b"user"), "the log has the input"),
    "a foreign run": (
        lambda client, run: client.xadd(keys.log(run.thread_id), {"role": "user", "run": "r"}, id="99-0"),
        "spoke in the order",
    ),
    "an unanswered call": (
        lambda client, run: client.xadd(keys.log(run.thread_id), {"role": "tool", "call": "c", "run": "r"}, id="99-0"),
        "have the results",
    ),
    "an open run": (lambda client, run: client.hset(keys.thread(run.thread_id), "open", "r"), "is open"),
    "a lock": (lambda client, run: client.set(keys.lock(run.thread_id), "r w 1 1"), "lock is left over"),
    "a watch entry": (lambda client, run: client.zadd(keys.WATCH, {run.thread_id: 1}), "on the watch list"),
}


def test_each_kind_of_tampering_is_found(fleet: Fleet) -> None:
    worker = fleet.worker()
    runs = {name: fleet.submit(["one", "two"]) for name in TAMPERING}
    until(lambda: fleet.all_done(runs.values()), 10, "all are done")
    assert worker.stop() == 0
    assert history.wrong(fleet, runs.values()) == []
    for name, (tamper, expected) in TAMPERING.items():
        tamper(fleet.client, runs[name])
        found = history.wrong(fleet, [runs[name]])
        assert any(expected in what for what in found), (name, found)
        fleet.client.zrem(keys.WATCH, runs[name].thread_id)

"""Taking and answering doorbells in RQ's key layout: many jobs cost one round trip.

RQ's own code needs fifty commands for a job; what is left here is what `rq info` and the dashboards read.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from postroom.mailbox import keys, lock, scripts
from postroom.mailbox.commit import Owner
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.keys import check_id, check_token
from postroom.mailbox.ops import Op, transition


@dataclass(slots=True)
class Bell:
    """A doorbell this worker has taken; an `opened` one comes with the claim to its run, if there was any need.

    Others must be looked into: what RQ wrote, what is nobody's, what was too much to bring along at once.
    """

    job: str
    execution: str
    queue: str
    data: bytes
    opened: bool = False
    owner: Owner | None = None
    # As the server told it. It is read by whoever serves the run: one that cannot be read must not spoil the others.
    claimed: Any = None

    @property
    def claim(self) -> lock.Claim | None:
        """The claim to its run."""
        return lock.read_claim(self.claimed) if self.claimed else None

    @property
    def entry(self) -> str:
        """Its place in the registry of started jobs."""
        return f"{self.job}:{self.execution}"

    @property
    def written_by_rq(self) -> bool:
        """Whether RQ's own API enqueued it: that packs what our scripts write as plain JSON."""
        return not self.data.startswith(b"[")

    def call(self) -> tuple[str, str, str]:
        """The function's name, thread and run; nothing is imported, whatever the name says."""
        try:
            # The scripts write plain JSON, RQ compresses it.
            text = self.data if self.data.startswith(b"[") else zlib.decompress(self.data)
            name, _, (thread_id, run_id), _ = json.loads(text)
            return str(name), check_id(thread_id, "thread id"), check_token(run_id, "run id")
        except (ValueError, TypeError, zlib.error) as error:
            raise InvalidInput(f"job {self.job} is no doorbell: {error}") from None


def script(name: str) -> scripts.Script:
    """One of the worker's own scripts."""
    return scripts.of_package("postroom.worker", name)


def started_registry(queue: str) -> str:
    """RQ's registry of started jobs."""
    return f"rq:wip:{queue}"


def worker_key(name: str) -> str:
    """RQ's record of a worker."""
    return f"rq:worker:{name}"


def take(
    queues: Sequence[str],
    count: int,
    worker: str,
    lease_ms: int,
    batch: str,
    again: bool = False,
    left_ms: int | None = None,
    now: int | None = None,
) -> Op[list[Bell]]:
    """Takes up to `count` doorbells, from the first queue first, and claims their runs.

    A batch has a name of its own; asked for `again`, because the reply was lost, it is the same one. With `left_ms` it
    is good only while the worker's record has so long left to live.
    """
    lists = [f"rq:queue:{queue}" for queue in queues]
    args = (
        count,
        keys.check_name(worker, "worker"),
        lease_ms,
        batch,
        "again" if again else "",
        "" if left_ms is None else left_ms,
    )
    return transition("take", lists, now, args, lambda reply: [_bell(*parts) for parts in reply])


def _bell(
    job: bytes, execution: bytes, queue: bytes, data: bytes, thread: bytes = b"", run: bytes = b"", claimed: Any = None
) -> Bell:
    owner = Owner(_text(thread), _text(run), int(claimed[0])) if claimed else None
    return Bell(_text(job), _text(execution), _text(queue), data, bool(thread), owner, claimed)


def _text(name: bytes) -> str:
    """A name somebody put into Redis; an odd one is nobody's, which is found out when it is used."""
    return name.decode("utf-8", "replace")


def answered(queue: str, entries: Sequence[str], worker: str) -> Op[int]:
    """These doorbells were answered; how many of them were still ours."""
    places = (worker_key(worker), started_registry(queue))
    return Op(("EVALSHA", script("answered").sha, len(places), *places, *entries), int)


def by_queue(bells: Iterable[Bell]) -> dict[str, list[str]]:
    """The entries of each queue."""
    entries: dict[str, list[str]] = {}
    for bell in bells:
        entries.setdefault(bell.queue, []).append(bell.entry)
    return entries


def extend(queue: str, entries: Sequence[str], now: datetime) -> Op[int]:
    """Says that these doorbells are still being answered."""
    until = int(now.timestamp()) + scripts.ABANDONED_AFTER_S
    return Op(("EVALSHA", script("extend").sha, 1, started_registry(queue), until, *entries), int)

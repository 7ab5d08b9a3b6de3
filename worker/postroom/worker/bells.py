"""Taking and answering doorbells in RQ's key layout: three scripts, so that many jobs cost one round trip.

RQ's own code needs fifty commands for a job; what is left here is what `rq info` and the dashboards read.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.ids import new_id
from postroom.mailbox.keys import check_id, check_token
from postroom.mailbox.ops import Command, Op
from postroom.mailbox.scripts import Script, of_package

# A started doorbell counts as abandoned this long after its worker last said otherwise. Longer than any lease: the run
# is recovered from its lock, and RQ's own clean-up must not meddle meanwhile.
ABANDONED_AFTER = 120


@dataclass(frozen=True, slots=True)
class Bell:
    """A doorbell this worker has taken."""

    job: str
    execution: str
    queue: str
    data: bytes

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


def script(name: str) -> Script:
    """One of the worker's own scripts."""
    return of_package("postroom.worker", name)


def started_registry(queue: str) -> str:
    """RQ's registry of started jobs."""
    return f"rq:wip:{queue}"


def worker_key(name: str) -> str:
    """RQ's record of a worker."""
    return f"rq:worker:{name}"


def take(queues: Sequence[str], count: int, worker: str, now: datetime) -> Op[list[Bell]]:
    """Takes up to `count` doorbells, from the first queue first."""
    at, seconds = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), now.timestamp()
    lists = [f"rq:queue:{queue}" for queue in queues]
    args: Command = (count, worker, at, seconds, int(seconds) + ABANDONED_AFTER, new_id())
    command: Command = ("EVALSHA", script("take").sha, len(lists), *lists, *args)
    return Op(
        command, lambda reply: [Bell(job.decode(), run.decode(), q.decode(), data) for job, run, q, data in reply]
    )


def answered(bells: Sequence[Bell], worker: str) -> Op[int]:
    """The doorbells were answered; how many of them were still ours."""
    places = [part for bell in bells for part in (started_registry(bell.queue), bell.job, bell.execution)]
    return Op(("EVALSHA", script("answered").sha, 1, worker_key(worker), *places), int)


def extend(queue: str, entries: Sequence[str], now: datetime) -> Op[int]:
    """Says that these doorbells are still being answered."""
    until = int(now.timestamp()) + ABANDONED_AFTER
    return Op(("EVALSHA", script("extend").sha, 1, started_registry(queue), until, *entries), int)

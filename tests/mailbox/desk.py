"""A desk to work at: one client, one fresh thread, one clock under the test's control."""

import itertools
import time
import uuid
from typing import Any, TypeVar

from postroom.mailbox import approvals, commit, inbox, journal, keys, lane, lock, log, ops, records, watch
from postroom.mailbox.commit import Arrivals, Batch, Owner
from postroom.mailbox.contracts import Decision, Letter, RunRecord, RunRequest, Termination, message, parse
from postroom.mailbox.lifecycle import TerminationKind, WaitingReason
from postroom.mailbox.settings import Settings

T = TypeVar("T")
LEASE = 10_000


class Desk:
    """Runs verbs on one thread; `now` is the clock every script is given."""

    def __init__(self, client: Any, settings: Settings | None = None) -> None:
        self.client: Any = client  # redis-py's types know every reply a command might ever give
        self.settings = settings or Settings()
        self.tag = uuid.uuid4().hex[:12]
        self.thread = f"t-{self.tag}"
        # A queue of its own: how many doorbells lie in front decides when somebody looks.
        self.queue = f"q-{self.tag}"
        self.now = int(time.time() * 1000)
        self._runs = itertools.count(1)

    def run(self, op: ops.Op[T]) -> T:
        return ops.run(self.client, op)

    def new_run(self) -> str:
        return f"{self.tag}-{next(self._runs)}"

    def submit(self, text: str = "hello", **more: Any) -> lane.Submitted:
        request = {"run_id": self.new_run(), "thread_id": self.thread, "agent": "clerk", "queue": self.queue} | more
        request.setdefault("messages", (message("user", text),))
        return self.run(lane.submit(parse(RunRequest, request), self.settings, self.now))

    def claim(self, run_id: str, worker: str = "w1", lease: int = LEASE, activation: str = "") -> lock.Claim:
        return self.run(lock.claim(self.thread, run_id, worker, lease, activation, self.now))

    def started(self, worker: str = "w1", **more: Any) -> Owner:
        run_id = self.submit(**more).run_id
        return self.owner(run_id, self.claim(run_id, worker).fence)

    def owner(self, run_id: str, fence: int) -> Owner:
        return Owner(self.thread, run_id, fence)

    def batch(self, owner: Owner, **more: Any) -> Batch:
        return Batch(int(self.record(owner.run_id).commits) + 1, **more)

    def commit(self, owner: Owner, batch: Batch | None = None) -> Arrivals:
        return self.run(commit.commit(owner, batch or self.batch(owner), self.now))

    def finish(self, owner: Owner, kind: str = "natural_end", batch: Batch | None = None, **more: Any) -> Arrivals:
        how = Termination(kind=TerminationKind(kind), **more)
        return self.run(commit.finish(owner, batch or self.batch(owner), how, now=self.now))

    def suspend(
        self,
        owner: Owner,
        reason: WaitingReason = WaitingReason.INPUT,
        wake: int | None = None,
        batch: Batch | None = None,
    ) -> Arrivals:
        return self.run(commit.suspend(owner, batch or self.batch(owner), reason, wake, now=self.now))

    def release(self, owner: Owner, failure: lock.Failure | None = None) -> lock.Released:
        return self.run(lock.release(owner.thread_id, owner.run_id, owner.fence, "drain", failure, self.now))

    def renew(self, owner: Owner) -> lock.Lease:
        return self.run(lock.renew(owner.thread_id, owner.run_id, owner.fence, LEASE, self.now))

    def look(self, dead_worker: str = "") -> watch.Look:
        return self.run(watch.reclaim(self.thread, self.settings.max_attempts, dead_worker, self.now))

    def cancel(self, run_id: str | None = None) -> lane.Cancelled:
        return self.run(lane.cancel(self.thread, run_id, now=self.now))

    def interrupt(self) -> lane.Interrupted:
        return self.run(lane.interrupt(self.thread, now=self.now))

    def decide(
        self, run_id: str, target: str, decision_id: str = "d1", action: str = "allow_once"
    ) -> approvals.Decided:
        decision = parse(Decision, {"id": decision_id, "target": target, "action": action})
        return self.run(approvals.decide(self.thread, run_id, [decision], now=self.now))

    def send(self, mail_id: str = "m1", text: str = "psst", **more: Any) -> inbox.Receipt:
        words = message("user", text)
        letter = {"id": mail_id, "thread_id": self.thread, "message": words, "queue": self.queue} | more
        return self.run(inbox.send(parse(Letter, letter), self.settings, self.now))

    def record(self, run_id: str) -> RunRecord:
        return self.run(records.get_run(self.thread, run_id))

    def status(self, run_id: str) -> str:
        return self.record(run_id).status.value

    def events(self, run_id: str) -> list[dict[str, Any]]:
        return [each.event for each in self.run(journal.read(self.thread, run_id))]

    def terminal(self, run_id: str) -> list[dict[str, Any]]:
        return [event for event in self.events(run_id) if event["type"] == "run_finish"]

    def texts(self) -> list[tuple[str, str]]:
        """The effective view as (role, words)."""
        view = log.view(self.run(log.read(self.thread)))
        return [
            (each.message["role"], "".join(block.get("text", "") for block in each.message.get("content", ())))
            for each in view
        ]

    def watched(self) -> int | None:
        score = self.client.zscore(keys.WATCH, self.thread)
        return None if score is None else int(score)

    def ttl(self, key: str) -> int:
        """Milliseconds a key has left; -1 for ever, -2 gone."""
        return int(self.client.pttl(key))

"""One writer per thread: a claim takes the lock and raises the fence, renewals keep it, a release gives it back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from postroom.mailbox import inbox, keys, log, scripts
from postroom.mailbox.doorbell import Doorbell, doorbell
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.ops import Fields, Op, hash_fields, on_thread


@dataclass(slots=True)
class Claim:
    """All that an activation needs to begin: whose it is, until when, and what was committed so far."""

    fence: int
    lease_until: int
    started: int
    thread: Fields
    run: Fields
    calls: Fields
    run_state: Fields
    thread_state: Fields
    mail: list[inbox.Mail]
    log: list[log.Entry]


@dataclass(frozen=True, slots=True)
class Lease:
    """A renewed lease and what has arrived meanwhile."""

    until: int
    cancel: str
    decisions: int
    mail: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a thread."""

    run_id: str
    worker: str
    fence: int
    lease_until: int


@dataclass(frozen=True, slots=True)
class Released:
    """What became of a run that was given back."""

    outcome: str
    doorbell: Doorbell | None


# One that was never claimed before has but the first of them.
_OF_RUN: Final = (*scripts.CLAIMED_OF_RUN, *scripts.CLAIMED_OF_BEGUN)


def claim(
    thread_id: str, run_id: str, worker: str, lease_ms: int, activation: str = "", now: int | None = None
) -> Op[Claim]:
    """Takes the thread for its head run, or raises NothingToDo; a named activation may safely ask again."""
    keys.check_token(run_id, "run id")
    keys.check_name(worker, "worker")
    if lease_ms <= 0:
        raise InvalidInput(f"a lease of {lease_ms} ms is none")
    return on_thread("claim", thread_id, now, (run_id, worker, lease_ms, activation), read_claim)


def read_claim(reply: Any) -> Claim:
    """A claim from what the server says of it."""
    fence, until, started, thread, run, calls, run_state, thread_state, mail, entries = reply
    return Claim(
        int(fence),
        int(until),
        int(started),
        _fields(scripts.CLAIMED_OF_THREAD, thread),
        _fields(_OF_RUN, run),
        hash_fields(calls) if calls else {},
        hash_fields(run_state) if run_state else {},
        hash_fields(thread_state) if thread_state else {},
        [inbox.mail(raw) for raw in mail],
        [log.entry(raw) for raw in entries],
    )


def _fields(names: Sequence[str], values: Sequence[bytes | None]) -> Fields:
    return {name: value for name, value in zip(names, values, strict=False) if value is not None}


def renew(thread_id: str, run_id: str, fence: int, lease_ms: int, now: int | None = None) -> Op[Lease]:
    """Extends the lease, or raises FenceLost."""

    def parse(reply: Any) -> Lease:
        until, cancel, decisions, mail = reply
        return Lease(int(until), cancel.decode(), decisions, mail)

    return on_thread("renew", thread_id, now, (run_id, fence, lease_ms), parse)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt: charged to the run, retried at a time, and the last one allowed ends it."""

    retry_at: int | None
    max_attempts: int


def release(
    thread_id: str, run_id: str, fence: int, reason: str, failure: Failure | None = None, now: int | None = None
) -> Op[Released]:
    """Gives the run back to the queue: free of charge for a drain, charged for a failed attempt."""
    charge = ("charge", failure.retry_at or "", failure.max_attempts) if failure else ("", "", 0)

    def parse(reply: Any) -> Released:
        return Released(reply[0].decode(), doorbell(reply[1]))

    return on_thread("release", thread_id, now, (run_id, fence, reason, *charge), parse)


def holder(thread_id: str) -> Op[Holder | None]:
    """Who holds the thread, as far as the lock key knows."""

    def parse(reply: bytes | None) -> Holder | None:
        if reply is None:
            return None
        run_id, worker, fence, until = reply.decode().split(" ")
        return Holder(run_id, worker, int(fence), int(until))

    return Op(("GET", keys.lock(thread_id)), parse)

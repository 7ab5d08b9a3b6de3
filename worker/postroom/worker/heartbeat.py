"""Keeping leases: every few seconds all of them in one round trip, with the worker's sign of life.

A transient error never ends this; a lease that cannot be kept ends its run here before it ends for everybody else.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from postroom.mailbox import lock
from postroom.mailbox.errors import FenceLost
from postroom.mailbox.ops import Op
from postroom.worker.desk import Active, Desk

log = logging.getLogger(__name__)

GUARD_S = 0.25


async def renew_all(desk: Desk, also: list[Op[Any]]) -> list[Any]:
    """Renews every lease of this process, and sends what else a heartbeat carries; the answers to that."""
    held = list(desk.active.values())
    asked_at = time.monotonic()
    results = await desk.group.run_all([*(_renewal(active) for active in held), *also])
    for active, outcome in zip(held, results, strict=False):
        take_in(active, outcome, asked_at)
    errors = [
        outcome for outcome in results if isinstance(outcome, BaseException) and not isinstance(outcome, FenceLost)
    ]
    if errors:
        raise errors[0]
    return results[len(held) :]


async def renew_now(desk: Desk, run_id: str) -> None:
    """Renews one lease at once: the reply says what has arrived, which is why somebody woke us."""
    active = desk.active.get(run_id)
    if active:
        asked_at = time.monotonic()
        (outcome,) = await desk.group.run_all([_renewal(active)])
        take_in(active, outcome, asked_at)


def take_in(active: Active, outcome: lock.Lease | BaseException, asked_at: float) -> None:
    """What a renewal's reply means for the run."""
    if isinstance(outcome, FenceLost):
        active.lose()
    elif isinstance(outcome, lock.Lease):
        active.renewed(asked_at)
        if outcome.cancel:
            active.request_cancel(outcome.cancel)


async def guard(desk: Desk, clock: Callable[[], float] = time.monotonic) -> None:
    """Stops runs whose lease is about to end, whatever the server does: it may not even answer."""
    margin = min(1.0, desk.settings.lease_ms / 5000)
    while True:
        for active in list(desk.active.values()):
            if not active.lost and clock() > active.lease_ends - margin:
                log.warning("run %s: the lease could not be renewed, giving it up", active.owner.run_id)
                active.lose()
        await asyncio.sleep(GUARD_S)


def _renewal(active: Active) -> Op[lock.Lease]:
    owner = active.owner
    return lock.renew(owner.thread_id, owner.run_id, owner.fence, active.lease_ms)

"""Rate limits of models, shared by the fleet: a bucket that refills all the time, and a fair queue before it.

A request that cannot go yet stands in a queue, in which each tenant's requests are spaced by what they cost; so one
request does not wait behind another tenant's thousand. Whoever waits asks again; who is silent loses its place.
"""

from dataclasses import dataclass
from typing import Any, Final

from postroom.mailbox import keys
from postroom.mailbox.ops import Op, transition

# The longest time somebody is told to wait before asking again, and how long a place is kept without that.
LONGEST_WAIT_MS: Final = 2_000
FORGET_MS: Final = 3 * LONGEST_WAIT_MS


@dataclass(frozen=True, slots=True)
class Allowance:
    """A model's limits per minute; 0 is no limit."""

    model: str
    requests: int = 0
    tokens: int = 0


def admit(allowance: Allowance, tenant: str, ticket: str, tokens: int = 0, now: int | None = None) -> Op[int]:
    """0 when the request with this ticket may go, else the milliseconds to wait before asking with it again."""
    wants = (allowance.requests, allowance.tokens, tenant, ticket, tokens, LONGEST_WAIT_MS, FORGET_MS)
    return transition("admit", (keys.limit(allowance.model),), now, wants, int)


def settle(allowance: Allowance, tokens: int) -> Op[int]:
    """Takes more tokens from the bucket than were asked for, or gives some back."""
    return transition("spend", (keys.limit(allowance.model),), None, (tokens,), int)


def leave(allowance: Allowance, ticket: str, tokens: int = 0) -> list[Op[Any]]:
    """Gives a place in the queue up."""
    place = f"{ticket} {tokens}"
    queue, seen = keys.limit_queue(allowance.model), keys.limit_seen(allowance.model)
    return [Op(("ZREM", queue, place), int), Op(("ZREM", seen, place), int)]

"""Which member of a pool is asked, and when another one is. Nothing here acts."""

import hashlib
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from postroom.worker.model import errors
from postroom.worker.model.errors import ModelError


class Choice(StrEnum):
    """How the first member is found: the same for one routing key, each in turn, or the first on the list."""

    DETERMINISTIC = "deterministic"
    ROUND_ROBIN = "round_robin"
    FIRST_HEALTHY = "first_healthy"


class Role(StrEnum):
    """Whether a member is asked in normal times or only when others fail."""

    MEMBER = "member"
    FAILOVER_ONLY = "failover_only"


class SwitchOn(StrEnum):
    """What makes a pool ask somebody else."""

    CIRCUIT_OPEN = "circuit_open"
    QUOTA = "quota"
    PERMANENT = "permanent"


@dataclass(frozen=True, slots=True)
class Member:
    """A model's place in a pool."""

    name: str
    weight: float = 1.0
    role: Role = Role.MEMBER


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """How a pool chooses and switches. A rate limit shorter than `quota_after` seconds is waited out instead."""

    choice: Choice = Choice.DETERMINISTIC
    switch_on: frozenset[SwitchOn] = frozenset(SwitchOn)
    quota_after: float = 0.0
    max_switches: int = 3


# The first that fits counts; None means that the pool always goes on, whatever its policy.
_REASONS: Final[tuple[tuple[tuple[type[ModelError], ...], SwitchOn | None], ...]] = (
    ((errors.CircuitOpen,), SwitchOn.CIRCUIT_OPEN),
    ((errors.RateLimited, errors.QuotaExhausted), SwitchOn.QUOTA),
    ((errors.Transient,), None),
    ((errors.Permanent,), SwitchOn.PERMANENT),
)


def order(members: tuple[Member, ...], choice: Choice, routing_key: str, turn: int) -> list[int]:
    """The members by number, in the order to ask them; those for failover come last, in the order they are listed."""
    homes = [place for place, member in enumerate(members) if member.role is Role.MEMBER]
    spare = [place for place, member in enumerate(members) if member.role is Role.FAILOVER_ONLY]
    if choice is Choice.DETERMINISTIC and routing_key:
        homes.sort(key=lambda place: _score(members[place], routing_key), reverse=True)
    elif choice is not Choice.FIRST_HEALTHY and homes:
        start = turn % len(homes)
        homes = homes[start:] + homes[:start]
    return homes + spare


def switches(error: ModelError, policy: PoolPolicy) -> bool:
    """Whether somebody else should be asked after this error."""
    if isinstance(error, errors.ContextOverflow):
        # Whoever asked can shorten the conversation; that keeps the thread with its member, and its cache.
        return False
    for kinds, reason in _REASONS:
        if isinstance(error, kinds):
            short = isinstance(error, errors.RateLimited) and (error.retry_after or math.inf) < policy.quota_after
            return not short and (reason is None or reason in policy.switch_on)
    return False


def _score(member: Member, routing_key: str) -> float:
    """Rendezvous hashing: a key keeps its member when others come or go, and weights are shares."""
    digest = hashlib.sha256(f"{member.name}\0{routing_key}".encode()).digest()
    drawn = (int.from_bytes(digest[:8]) + 1) / (2**64 + 2)
    return -member.weight / math.log(drawn)

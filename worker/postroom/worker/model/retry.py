"""When to ask again, how long to wait before, and what becomes of an answer that broke off. Nothing here acts."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from postroom.worker.model.base import Plain, Request
from postroom.worker.model.errors import ModelError, Overloaded, Transient
from postroom.worker.model.reply import Call, Reply

GO_ON: Final = (
    "Your last message was cut off by a technical fault. Continue exactly where it stops, "
    "without repeating or introducing anything."
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient to be; times are seconds. Whoever asks us to wait longer than `patience` is not waited for."""

    max_retries: int = 2
    max_stream_retries: int = 2
    base: float = 0.5
    overloaded_base: float = 2.0
    longest: float = 8.0
    patience: float = 60.0


@dataclass(frozen=True, slots=True)
class Tries:
    """What was tried so far: requests that failed before anything was said, and answers that broke off."""

    refused: int = 0
    broken: int = 0

    def another(self, policy: RetryPolicy, error: ModelError, spoken: bool) -> "Tries | None":
        """The count with this failure in it, or None when it is one too many or not worth trying again."""
        if not isinstance(error, Transient) or (error.retry_after or 0.0) > policy.patience:
            return None
        if spoken:
            return replace(self, broken=self.broken + 1) if self.broken < policy.max_stream_retries else None
        return replace(self, refused=self.refused + 1) if self.refused < policy.max_retries else None

    def wait(self, policy: RetryPolicy, error: ModelError, draw: float) -> float:
        """Seconds to wait: up to twice as long each time, anywhere in between, and never less than was asked for.

        `draw` is random from 0 to 1. Workers that failed together must not come back together.
        """
        base = policy.overloaded_base if isinstance(error, Overloaded) else policy.base
        longest = min(policy.longest, base * 2.0 ** (self.refused + self.broken - 1))
        return max(longest * draw, error.retry_after or 0.0)


class Plan(StrEnum):
    """What to do with an answer that broke off."""

    CONTINUE = "continue"
    ACCEPT = "accept"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Recovery:
    """A plan, and the calls it gives up."""

    plan: Plan
    dropped: tuple[Call, ...] = ()


def recovery(reply: Reply, said_before: str = "") -> Recovery:
    """The plan for what had arrived.

    A complete call is worth the whole answer: it is taken as final. Words are continued, and a call that was only begun
    is dropped. Without either the answer begins again.
    """
    # Arguments that are a JSON object are complete: no beginning of one is one. Without text nothing is proven.
    begun = tuple(call for call in reply.calls if not call.arguments or call.parsed is None)
    if len(begun) < len(reply.calls):
        return Recovery(Plan.ACCEPT, begun)
    if (said_before + reply.text).strip():
        return Recovery(Plan.CONTINUE, begun)
    return Recovery(Plan.RESTART)


def continued(request: Request, text: str) -> Request:
    """The request that asks for the rest."""
    said: Plain = {"role": "assistant", "content": [{"type": "text", "text": text}], "metadata": {"partial": True}}
    wish: Plain = {"role": "user", "content": [{"type": "text", "text": GO_ON}], "visibility": "internal"}
    return replace(request, messages=(*request.messages, said, wish))

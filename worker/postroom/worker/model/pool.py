"""Several models under one name: the next is asked when one fails."""

import itertools
import logging
from collections.abc import AsyncIterator, Sequence

from postroom.mailbox.contracts import Usage
from postroom.mailbox.errors import InvalidInput
from postroom.worker.model.base import Limits, Model, Part, Request, Reset, UsagePart
from postroom.worker.model.errors import (
    AllModelsUnavailable,
    CircuitOpen,
    ModelError,
    Permanent,
    PoolAttemptsExhausted,
    RequestRejected,
)
from postroom.worker.model.pooling import Member, PoolPolicy, order, switches
from postroom.worker.model.retrying import opened

log = logging.getLogger(__name__)


class Pool:
    """A model made of models."""

    def __init__(self, name: str, members: Sequence[tuple[Member, Model]], policy: PoolPolicy | None = None) -> None:
        if not members:
            raise InvalidInput(f"pool {name!r} has no members")
        self.name = name
        self._members = tuple(member for member, _ in members)
        self._models = tuple(model for _, model in members)
        self._policy = policy or PoolPolicy()
        self._turns = itertools.count()

    @property
    def limits(self) -> Limits:
        """What every member can take; prices differ and are each member's own."""
        windows = [each.limits.context_window for each in self._models if each.limits.context_window]
        outputs = [each.limits.max_output_tokens for each in self._models if each.limits.max_output_tokens]
        return Limits(min(windows, default=None), min(outputs, default=None))

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        """The answer of the first member that gives one; a Reset takes back what a failed one said."""
        if request.upstream is not None:
            raise RequestRejected(f"pool {self.name!r}: its members have names of their own, leave upstream out")
        spent, switched, failures = Usage(), 0, list[ModelError]()
        for place in order(self._members, self._policy.choice, request.routing_key, next(self._turns)):
            if switched > self._policy.max_switches:
                raise PoolAttemptsExhausted(self._told(f"switched {self._policy.max_switches} times", failures))
            spoken, usage = False, Usage()
            try:
                async with opened(self._models[place], request) as parts:
                    async for part in parts:
                        if isinstance(part, UsagePart):
                            usage = part.usage
                            yield UsagePart(spent + usage)
                        else:
                            spoken = True
                            yield part
                return
            except ModelError as error:
                failure = error
            if not switches(failure, self._policy):
                raise failure
            log.warning("pool %s goes on to its next member: %s", self.name, failure)
            failures.append(failure)
            spent += usage
            # Being told at once that somebody is out of order costs nothing.
            switched += not isinstance(failure, CircuitOpen)
            if spoken:
                yield Reset(failure.code)
        if all(isinstance(error, Permanent) for error in failures):
            raise failures[-1]
        waits = [error.retry_after for error in failures if error.retry_after]
        raise AllModelsUnavailable(self._told("no member answered", failures), min(waits, default=None))

    def _told(self, what: str, failures: Sequence[ModelError]) -> str:
        return f"pool {self.name!r}: {what}; " + "; ".join(error.message for error in failures)

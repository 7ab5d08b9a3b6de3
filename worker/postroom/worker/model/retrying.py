"""A model that is asked again: the same model, behind a plan for every way an answer can fail."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

from postroom.mailbox.contracts import Usage
from postroom.worker.model.base import CallDropped, Limits, Model, Part, Request, Reset, Stop, StopReason, UsagePart
from postroom.worker.model.errors import ModelError, StreamInterrupted
from postroom.worker.model.reply import Listener, Reply
from postroom.worker.model.retry import Plan, RetryPolicy, Tries, continued, recovery

log = logging.getLogger(__name__)


def opened(model: Model, request: Request) -> Any:
    """An answer that is closed when its block is left, so that a cancel reaches the provider at once."""
    return aclosing(cast(Any, model.stream(request)))


class Retrying:
    """Asks again after transient failures, and makes the best of an answer that broke off."""

    def __init__(
        self,
        model: Model,
        policy: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.model = model
        self._policy = policy or RetryPolicy()
        self._sleep, self._draw = sleep, draw

    @property
    def name(self) -> str:
        """How people call it."""
        return self.model.name

    @property
    def limits(self) -> Limits:
        """What is known of its size and price."""
        return self.model.limits

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        """The answer in parts; a Reset or CallDropped among them takes back what a failed attempt said."""
        tries, spent, said, asked = Tries(), Usage(), "", request
        while True:
            listener = Listener()
            try:
                async with opened(self.model, asked) as parts:
                    async for part in parts:
                        listener.hear(part)
                        yield UsagePart(spent + part.usage) if isinstance(part, UsagePart) else part
                if listener.reply().stop is None:
                    raise StreamInterrupted(f"{self.name}: the answer ended before the model said why it stopped")
                return
            except ModelError as error:
                failure, reply = error, listener.reply()
            spent += reply.usage
            spoken = bool(reply.content or reply.calls)
            found = recovery(reply, said)
            if spoken and found.plan is Plan.ACCEPT and failure.retryable:
                for part in self._accepted(found.dropped, failure):
                    yield part
                return
            again = tries.another(self._policy, failure, spoken)
            if again is None:
                raise failure
            tries = again
            if spoken:
                for part in self._taken_back(found.plan, reply, failure):
                    yield part
                said = said + reply.text if found.plan is Plan.CONTINUE else ""
                asked = continued(request, said) if said else request
            await self._wait(tries, failure)

    def _accepted(self, dropped: Any, failure: ModelError) -> list[Part]:
        log.warning("%s, keeping the calls that were complete", failure)
        return [
            *(CallDropped(call.id, call.name, failure.code) for call in dropped),
            Stop(StopReason.TOOL_USE),
        ]

    def _taken_back(self, plan: Plan, reply: Reply, failure: ModelError) -> list[Part]:
        if plan is Plan.RESTART:
            return [Reset(failure.code)]
        return [CallDropped(call.id, call.name, failure.code) for call in reply.calls]

    async def _wait(self, tries: Tries, failure: ModelError) -> None:
        seconds = tries.wait(self._policy, failure, self._draw())
        log.warning("%s, asking again in %.1f s", failure, seconds, extra={"code": failure.code})
        await self._sleep(seconds)

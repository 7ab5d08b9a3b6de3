"""A model whose requests and tokens per minute are shared by the whole fleet, fairly between tenants."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator

from redis.exceptions import RedisError

from postroom.mailbox import limits as verbs
from postroom.mailbox.group import Group
from postroom.mailbox.limits import Allowance
from postroom.worker.model.base import Limits, Model, Part, Request, UsagePart
from postroom.worker.model.errors import RateLimited
from postroom.worker.model.retrying import opened
from postroom.worker.model.wire import arguments_text, blocks

log = logging.getLogger(__name__)

# How long a request waits for its turn in its worker's slot; after that the run is better given back.
PATIENCE_S = 60.0
CHARACTERS_PER_TOKEN = 4
ANSWER_TOKENS = 1_024
# What a picture or a file counts when nobody knows.
ATTACHMENT_TOKENS = 1_500


class Gate:
    """The way to Redis, which a worker opens when it starts; models are made before."""

    def __init__(self) -> None:
        self.group: Group | None = None
        self._warned = False

    def open(self, group: Group) -> None:
        """From now on limits are shared with the fleet."""
        self.group = group

    def missing(self, model: str) -> None:
        """Says once that nobody shares a limit."""
        if not self._warned:
            self._warned = True
            log.warning("%s has a rate limit, but no server to share it through: it is not applied", model)


class Limited:
    """Waits for its turn before it asks, and tells afterwards what the answer really took."""

    def __init__(
        self,
        model: Model,
        gate: Gate,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        patience: float = PATIENCE_S,
    ) -> None:
        self.model = model
        self._gate = gate
        self._allowance = Allowance(model.name, requests_per_minute or 0, tokens_per_minute or 0)
        self._patience = patience

    @property
    def name(self) -> str:
        """How people call it."""
        return self.model.name

    @property
    def limits(self) -> Limits:
        """What is known of its size and price."""
        return self.model.limits

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        """The answer in parts, once it is this request's turn."""
        reserved = estimate(request) if self._allowance.tokens else 0
        await self._turn(request.tenant, reserved)
        taken = reserved
        try:
            async with opened(self.model, request) as parts:
                async for part in parts:
                    if isinstance(part, UsagePart):
                        taken = part.usage.input_tokens + part.usage.output_tokens
                    yield part
        finally:
            if taken != reserved:
                await asyncio.shield(self._settle(taken - reserved))

    async def _turn(self, tenant: str, tokens: int) -> None:
        group = self._gate.group
        if group is None:
            self._gate.missing(self.name)
            return
        ticket = uuid.uuid4().hex
        clock = asyncio.get_running_loop().time
        until = clock() + self._patience
        admitted = False
        try:
            while wait := await group.run(verbs.admit(self._allowance, tenant, ticket, tokens)):
                if clock() + wait / 1000 > until:
                    raise RateLimited(
                        f"{self.name}: no turn within its rate limit in {self._patience:g} s", wait / 1000
                    )
                await asyncio.sleep(wait / 1000)
            admitted = True
        except (RedisError, OSError) as error:
            # The limit is a courtesy, the provider has its own; what matters is committed elsewhere.
            log.warning("%s: the shared rate limit cannot be asked: %s", self.name, error)
            admitted = True
        finally:
            if not admitted:
                await asyncio.shield(self._leave(group, ticket, tokens))

    async def _leave(self, group: Group, ticket: str, tokens: int) -> None:
        await group.run_all(verbs.leave(self._allowance, ticket, tokens))

    async def _settle(self, more: int) -> None:
        if self._gate.group is None:
            return
        try:
            await self._gate.group.run(verbs.settle(self._allowance, more))
        except (RedisError, OSError) as error:
            log.warning("%s: the shared rate limit cannot be told: %s", self.name, error)


def estimate(request: Request) -> int:
    """About how many tokens a request and its answer take; the truth is told when it is known."""
    characters = sum(len(tool.description) + 200 for tool in request.tools)
    attachments = 0
    for message in request.messages:
        for block in blocks(message):
            characters += len(block.get("text", ""))
            attachments += "source" in block
        characters += sum(len(arguments_text(call)) for call in message.get("tool_calls", ()))
    answer = request.options.max_tokens or ANSWER_TOKENS
    return characters // CHARACTERS_PER_TOKEN + attachments * ATTACHMENT_TOKENS + answer

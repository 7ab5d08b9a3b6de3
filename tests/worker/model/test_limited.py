"""A model whose limits are shared through Redis by all workers."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from postroom.mailbox import keys
from postroom.mailbox.connect import connect, connect_async
from postroom.mailbox.group import Group
from postroom.worker.model.base import Options, Stop, ToolSpec
from postroom.worker.model.errors import RateLimited
from postroom.worker.model.limited import Gate, Limited, estimate
from postroom.worker.model.scripted import ScriptedModel
from tests.waiting import until
from tests.worker.model.conftest import Make, hear, question
from tests.worker.model.provider import Provider


def with_gates(url: str, count: int, body: Callable[[list[Gate]], Awaitable[None]]) -> None:
    """As many workers' ways to one server."""

    async def main() -> None:
        clients = [await connect_async(url) for _ in range(count)]
        groups = [Group(client) for client in clients]
        gates = [Gate() for _ in groups]
        for gate, group in zip(gates, groups, strict=True):
            gate.open(group)
        try:
            await body(gates)
        finally:
            for group, client in zip(groups, clients, strict=True):
                await group.close()
                await client.aclose()

    asyncio.run(main())


def scripted(**answer: Any) -> ScriptedModel:
    return ScriptedModel(lambda _: {"say": "ok", **answer}, f"model-{uuid.uuid4().hex}")


async def ask(model: Limited, tenant: str = "") -> None:
    parts = [part async for part in model.stream(question(tenant=tenant))]
    assert isinstance(parts[-1], Stop)


def test_two_workers_share_one_limit(server_url: str) -> None:
    inner = scripted()

    async def body(gates: list[Gate]) -> None:
        workers = [Limited(inner, gate, requests_per_minute=600) for gate in gates]
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(ask(workers[number % 2]) for number in range(605)))
        # 600 at once, ten more a second.
        assert loop.time() - began >= 0.49

    with_gates(server_url, 2, body)
    assert len(inner.requests) == 605


def test_what_was_really_used_counts(server_url: str) -> None:
    inner = scripted(usage={"input_tokens": 5_000, "output_tokens": 1_000})

    async def body(gates: list[Gate]) -> None:
        model = Limited(inner, gates[0], tokens_per_minute=6_000, patience=0.05)
        await ask(model)
        with pytest.raises(RateLimited, match="no turn within its rate limit") as caught:
            await ask(model)
        assert caught.value.retry_after

    with_gates(server_url, 1, body)
    with connect(server_url) as client:
        # Whoever gave up has left the queue.
        assert client.exists(keys.limit_queue(inner.name)) == 0


def test_a_cancelled_request_leaves_the_queue(server_url: str) -> None:
    inner = scripted()

    async def body(gates: list[Gate]) -> None:
        model = Limited(inner, gates[0], requests_per_minute=1)
        await ask(model)
        task = asyncio.create_task(ask(model))
        await asyncio.to_thread(until, lambda: client.exists(queue), 5, "somebody waits for the limit")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert client.exists(queue) == 0

    with connect(server_url) as client:
        queue = keys.limit_queue(inner.name)
        with_gates(server_url, 1, body)


def test_without_a_server_it_says_so_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    model = Limited(scripted(), Gate(), requests_per_minute=1)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            asyncio.run(ask(model))
    assert sum("no server to share it through" in record.message for record in caplog.records) == 1


def test_limits_come_from_the_catalog(server_url: str, provider: Provider, models: Make) -> None:
    name = f"openai:{uuid.uuid4().hex}"
    made = models(models={name: {"requests_per_minute": 2}})

    async def body(gates: list[Gate]) -> None:
        assert gates[0].group
        made.gate.open(gates[0].group)
        async for _ in made.resolve(name).stream(question()):
            pass
        await made.close()

    with_gates(server_url, 1, body)
    with connect(server_url) as client:
        assert float(client.hget(keys.limit(name), "requests") or 9) < 2
    assert hear(models(), name)


def test_estimates_grow_with_what_is_sent() -> None:
    small = estimate(question("x"))
    picture = {"type": "image", "source": {"kind": "url", "url": "http://x"}}
    called = {"role": "assistant", "tool_calls": [{"id": "a", "name": "f", "arguments": {"text": "y" * 4000}}]}
    assert estimate(question("x" * 4000)) == small + 1000
    assert estimate(question("x", options=Options(max_tokens=10))) < small
    assert estimate(question("x", tools=(ToolSpec("f", "d", {}),))) > small
    request = type(question())((*question("x").messages, {"role": "user", "content": [picture]}, called))
    assert estimate(request) > small + 2000

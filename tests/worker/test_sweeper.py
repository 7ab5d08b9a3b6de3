"""Somebody always looks after the watch list, whoever is killed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from postroom.dispatcher.sweep import WANTED, Sweeper
from postroom.mailbox import keys
from postroom.mailbox.connect import connect, connect_async
from postroom.mailbox.group import Group
from postroom.mailbox.settings import Settings
from tests.waiting import until
from tests.worker.fleet import Child, Fleet, FleetOn, Server

SWEEPER = "postroom:sweeper"


def sweeping(fleet: Fleet, among: list[Child]) -> Child | None:
    """The process that sweeps, if it is one of these."""
    value = fleet.client.get(SWEEPER)
    found = value.decode().split("-")[-2] if value else ""
    return next((child for child in among if str(child.pid) == found), None)


@asynccontextmanager
async def on(server: Server) -> AsyncIterator[Group]:
    """A group on this server."""
    client = await connect_async(server.url)
    group = Group(client)
    yield group
    await group.close()
    await client.aclose()


def test_another_takes_over(server: Server, fleet_on: FleetOn) -> None:
    with fleet_on(server.url) as fleet:
        standing_by = [fleet.sweeper(), fleet.sweeper()]
        first = until(lambda: sweeping(fleet, standing_by), 20, "one sweeps")
        assert first
        late = fleet.submit(["late"], start_at=int(fleet.client.time()[0]) * 1000 + 2_500)
        first.kill()
        standing_by.remove(first)
        until(lambda: sweeping(fleet, standing_by), 3, "the other one sweeps")
        worker = fleet.worker()
        until(lambda: fleet.all_done([late]), 10, "the delayed run starts")
        standing_by[0].kill()
        until(lambda: sweeping(fleet, [worker]), 3, "without a dispatcher the worker sweeps")
        again = fleet.submit(["later"], start_at=int(fleet.client.time()[0]) * 1000 + 500)
        until(lambda: fleet.all_done([again]), 10, "the delayed run starts")


def test_a_dispatcher_takes_the_office_from_a_worker(server: Server, fleet_on: FleetOn) -> None:
    with fleet_on(server.url) as fleet:
        worker = fleet.worker()
        until(lambda: sweeping(fleet, [worker]), 3, "without a dispatcher the worker sweeps")
        dispatcher = fleet.sweeper()
        until(lambda: sweeping(fleet, [dispatcher]), 3, "the dispatcher sweeps")
        dispatcher.kill()
        until(lambda: sweeping(fleet, [worker]), 3, "without a dispatcher the worker sweeps again")


def test_a_worker_does_not_stand_against_a_dispatcher(server: Server) -> None:
    async def elections() -> None:
        async with on(server) as group:
            settings = Settings()
            worker, other = (Sweeper(group, settings, "worker") for _ in range(2))
            dispatcher, second = (Sweeper(group, settings, "dispatcher") for _ in range(2))
            assert await worker.elected()
            assert not await other.elected()
            assert await worker.elected()
            assert not await dispatcher.elected()  # and asks for the office
            assert not await other.elected()
            assert not await worker.elected()  # which the worker gives up
            assert not await other.elected()
            assert await dispatcher.elected()
            assert not await second.elected()
            assert not await worker.elected()
            assert await dispatcher.elected()
            await dispatcher.resign()
            assert await worker.elected()

    asyncio.run(elections())


def test_a_dispatcher_that_asks_no_more_keeps_nobody_from_the_office(server: Server) -> None:
    async def elections() -> None:
        async with on(server) as group:
            worker = Sweeper(group, Settings(), "worker")
            assert await worker.elected()
            assert not await Sweeper(group, Settings(sweep_ms=50), "dispatcher").elected()
            assert not await worker.elected()
            with connect(server.url) as client:
                await asyncio.to_thread(until, lambda: not client.exists(WANTED), 5, "it has not asked for long")
            assert await worker.elected()

    asyncio.run(elections())


def test_a_server_that_refuses_is_not_called_silent(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async def sweeping() -> None:
        async with on(server) as group:
            await group.client.config_set("maxmemory", 1)
            stopping = asyncio.Event()
            sweeping = asyncio.create_task(Sweeper(group, Settings(sweep_ms=20), "dispatcher").run(stopping))
            await asyncio.to_thread(until, lambda: caplog.records, 5, "it says what is wrong")
            stopping.set()
            await sweeping

    asyncio.run(sweeping())
    assert "the server refuses (" in caplog.text
    assert "maxmemory" in caplog.text
    assert "does not answer" not in caplog.text


def test_one_that_leaves_hands_over_at_once(server: Server, fleet_on: FleetOn) -> None:
    with fleet_on(server.url, sweep_ms=1_000) as fleet:
        standing_by = [fleet.sweeper(), fleet.sweeper()]
        first = until(lambda: sweeping(fleet, standing_by), 20, "one sweeps")
        assert first
        assert first.stop() == 0
        standing_by.remove(first)
        until(lambda: sweeping(fleet, standing_by), 2, "the other one sweeps")


def test_an_entry_that_names_no_thread_stops_no_sweeper(server: Server) -> None:
    async def swept() -> list[Any]:
        async with on(server) as group:
            await group.client.zadd(keys.WATCH, {b"\xff": 1, b"a{b": 2})
            await Sweeper(group, Settings(), "dispatcher").sweep()
            return list(await group.client.zrange(keys.WATCH, 0, -1))

    assert asyncio.run(swept()) == []

"""Somebody always looks after the watch list, whoever is killed."""

import asyncio
from typing import Any

from postroom.dispatcher.sweep import Sweeper
from postroom.mailbox import keys
from postroom.mailbox.connect import connect_async
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
        client = await connect_async(server.url)
        group = Group(client)
        await client.zadd(keys.WATCH, {b"\xff": 1, b"a{b": 2})
        await Sweeper(group, Settings()).sweep()
        left = await client.zrange(keys.WATCH, 0, -1)
        await group.close()
        await client.aclose()
        return list(left)

    assert asyncio.run(swept()) == []

"""A run taken from a process that was stopped may come back to that very process."""

import asyncio
import uuid

from postroom.mailbox import lane, watch
from postroom.mailbox.connect import connect_async
from postroom.mailbox.contracts import RunRequest, message, parse
from postroom.mailbox.group import Group
from postroom.mailbox.journal import read
from postroom.mailbox.settings import Settings
from postroom.worker.activation import activate
from postroom.worker.desk import Desk
from tests.worker.fleet_app import app


async def _taken_from_us_and_back(url: str) -> list[str]:
    client = await connect_async(url)
    desk = Desk(Group(client), app, Settings(), "w1")
    name = uuid.uuid4().hex
    given = {"run_id": name, "thread_id": name, "agent": "clerk", "messages": (message("user", "begin"),)}
    script = {"metadata": {"script": ["one", {"sleep": 0.5, "say": "two"}]}}
    await desk.group.run(lane.submit(parse(RunRequest, {**given, **script, "queue": name}), desk.settings))
    first = asyncio.create_task(activate(desk, name, name))
    while not (name in desk.active and desk.active[name].stepping):  # noqa: ASYNC110 - the activation tells nobody
        await asyncio.sleep(0)
    await desk.group.run(watch.reclaim(name, 5, "w1"))
    second = asyncio.create_task(activate(desk, name, name))
    await asyncio.gather(first, second)
    assert desk.active == {}
    told = await desk.group.run(read(name, name))
    await desk.group.close()
    await client.aclose()
    return [each.event["type"] for each in told]


def test_a_doorbell_for_a_run_that_was_taken_from_us_is_answered(server_url: str) -> None:
    told = asyncio.run(_taken_from_us_and_back(server_url))
    assert told.count("step_end") == 2
    assert told[-1] == "run_finish"

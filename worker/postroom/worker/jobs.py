"""The job that doorbells name. `postroom worker` looks it up here; the stock `rq worker` imports and runs it."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from postroom.mailbox import scripts
from postroom.mailbox.connect import LOST_CONNECTION, connect_async
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.group import Group
from postroom.mailbox.settings import Settings
from postroom.worker.activation import activate
from postroom.worker.desk import Desk
from postroom.worker.heartbeat import guard, renew_all
from postroom.worker.loading import load
from postroom.worker.model import resolve as models
from postroom.worker.stored import StoredAgents

Handler = Callable[[Desk, str, str], Awaitable[None]]

# The only functions a worker will run, whatever a job in Redis may name.
HANDLERS: dict[str, Handler] = {scripts.JOB: activate}


async def execute_run(thread_id: str, run_id: str) -> None:
    """Serves one doorbell in a process of its own, under the stock `rq worker`; the app comes from POSTROOM_APP."""
    settings = Settings.from_env()
    if not settings.app or not settings.redis_url:
        raise InvalidInput("the stock rq worker needs POSTROOM_APP and POSTROOM_REDIS_URL in its environment")
    client = await connect_async(settings.redis_url)
    name = f"rq-{socket.gethostname()}-{os.getpid()}"
    desk = Desk(Group(client), load(settings.app), settings, name)
    models.default().gate.open(desk.group)
    desk.stored = StoredAgents(desk.group, desk.app)
    await desk.stored.refresh()
    beating = [asyncio.create_task(_beat(desk)), asyncio.create_task(guard(desk))]
    try:
        await activate(desk, thread_id, run_id)
    finally:
        for task in beating:
            task.cancel()
        await asyncio.gather(*beating, return_exceptions=True)
        await desk.rest()
        await models.default().close()
        await desk.group.close()
        await client.aclose()


async def _beat(desk: Desk) -> None:
    while True:
        await asyncio.sleep(desk.settings.heartbeat_ms / 1000)
        with suppress(*LOST_CONNECTION):
            await renew_all(desk, [])

"""The dispatcher process: it sweeps, and teaches the server to accept runs from any language."""

import asyncio
import logging
import signal

from postroom.dispatcher import functions
from postroom.dispatcher.sweep import Sweeper
from postroom.mailbox.connect import connect_async
from postroom.mailbox.group import Group
from postroom.mailbox.settings import Settings

log = logging.getLogger(__name__)


async def serve(url: str, settings: Settings) -> int:
    """Sweeps until SIGTERM or Ctrl-C."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    client = await connect_async(url)
    group = Group(client)
    await group.run(functions.install(settings))
    log.info("dispatcher: standing by to sweep")
    await Sweeper(group, settings, "dispatcher").run(stopping)
    await group.close()
    await client.aclose()
    return 0

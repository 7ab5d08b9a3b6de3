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


class Service:
    """Sweeps until SIGTERM or Ctrl-C."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.url, self.settings = url, settings
        self.stopping = asyncio.Event()

    async def run(self) -> int:
        """Until told to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        client = await connect_async(self.url)
        group = Group(client)
        await group.run(functions.install(self.settings))
        log.info("dispatcher: standing by to sweep")
        await Sweeper(group, self.settings, "dispatcher").run(self.stopping)
        await group.close()
        await client.aclose()
        return 0

    def stop(self) -> None:
        """Ends the sweep after the pass under way."""
        self.stopping.set()

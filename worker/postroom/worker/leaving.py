"""A process on an embedded server leaves with it: nobody tries a port for ever on which nothing will answer again."""

import asyncio
from typing import Protocol

from postroom.mailbox.server import EmbeddedServer

LOOK_S = 1.0


class Process(Protocol):
    """What runs until it is told to stop; told a second time, it hurries."""

    stopping: asyncio.Event

    async def run(self) -> int: ...

    def stop(self) -> None: ...


async def attended(process: Process, server: EmbeddedServer | None) -> int:
    """Runs it; has it leave, and says so, when the embedded server that it works on is withdrawn or dies."""
    if server is None:
        return await process.run()
    lost = asyncio.Event()
    watching = asyncio.create_task(_watch(process, server, lost))
    try:
        code = await process.run()
    finally:
        watching.cancel()
    if lost.is_set():
        raise server.gone()
    return code


async def _watch(process: Process, server: EmbeddedServer, lost: asyncio.Event) -> None:
    while server.stays() and server.lives():  # noqa: ASYNC110 - another process decides, and tells nobody
        await asyncio.sleep(LOOK_S)
    if not process.stopping.is_set():
        lost.set()
        process.stop()
    # While it is only withdrawn there is time to finish; once it is dead there is nothing to finish with.
    await asyncio.sleep(LOOK_S)
    while server.lives():  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    process.stop()

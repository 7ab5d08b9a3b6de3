"""Waiting for a doorbell while there is nothing to do.

A look at the queue that blocks, and behind it, in the same write, the take: when a doorbell rings the server goes on to
the take by itself, and the run is ours without another word. Who died while it waited should get nothing, so such a
take is good only while its worker's heart beats.
"""

import asyncio
from contextlib import suppress
from typing import Any

import redis.asyncio
from redis.exceptions import ResponseError

from postroom.mailbox.connect import LOST_CONNECTION
from postroom.mailbox.group import Group, read_reply, send
from postroom.mailbox.ops import Op, is_unknown, result
from postroom.mailbox.wire import Command, pack_all
from postroom.worker.bells import Bell

LOOK_S = 5
# How long one that was called off may take to hear of it before it is told again.
PATIENCE_S = 0.05


class Lookout:
    """Waits at one queue, on a connection of its own."""

    def __init__(self, client: "redis.asyncio.Redis", group: Group, queue: str) -> None:
        self._group = group
        self._pool: Any = client.connection_pool
        self._connection: Any = None
        self._id = 0
        self._ended = asyncio.Event()
        self._ended.set()
        key = f"rq:queue:{queue}"
        # Moving its head onto itself changes nothing.
        self._look: Command = ("BLMOVE", key, key, "LEFT", "LEFT", LOOK_S)

    async def watch(self, take: Op[list[Bell]] | None) -> list[Bell]:
        """Waits until the queue has something, for a while, or until called off; then what there was to take."""
        self._ended.clear()
        try:
            await self._connect()
            await send(self._connection, pack_all([self._look, *([take.command] if take else [])]))
            await read_reply(self._connection)
            reply = await read_reply(self._connection) if take else None
            return result(take, reply) if take and not is_unknown(reply) else []
        except BaseException as error:
            await self._hang_up()
            if isinstance(error, LOST_CONNECTION):
                await self._make_sure()
            raise
        finally:
            self._ended.set()

    async def call_off(self) -> None:
        """Ends the wait; what was taken meanwhile is still told to whoever watches."""
        # Later than that the look has ended by itself, and if nobody hears of it the connection is at fault.
        with suppress(*LOST_CONNECTION, TimeoutError):
            async with asyncio.timeout(LOOK_S):
                while not self._ended.is_set():
                    # It may not have come to wait yet, so once is not always enough.
                    await self._group.run(Op(("CLIENT", "UNBLOCK", self._id), int))
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._ended.wait(), PATIENCE_S)

    async def close(self) -> None:
        """Gives the connection back."""
        if self._connection:
            connection, self._connection = self._connection, None
            await self._pool.release(connection)

    async def _connect(self) -> None:
        if self._connection is None:
            self._connection = await self._pool.get_connection()
            await send(self._connection, pack_all([("CLIENT", "ID")]))
            self._id = await read_reply(self._connection)

    async def _make_sure(self) -> None:
        """Ends the connection at the server too, or the take might be carried out when nobody asks for it any more."""
        with suppress(*LOST_CONNECTION, ResponseError):
            await self._group.run(Op(("CLIENT", "KILL", "ID", self._id), int))

    async def _hang_up(self) -> None:
        if self._connection:
            await self._connection.disconnect(nowait=True)
            await self.close()

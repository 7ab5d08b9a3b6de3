"""Group commit: verbs that concurrent tasks issue in the same turn of the event loop leave as one write.

Each caller awaits its own reply and its own error. One connection, replies in order. Two groups may be under way, so
that the server has one to work on while we read the other; meanwhile the next one gathers, so the busier the process,
the larger the groups and the fewer the round trips.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from postroom.mailbox.ops import Op, first_refusal, is_unknown, loading, result
from postroom.mailbox.wire import Call, Command, Packed, calls, pack

T = TypeVar("T")
Sent = tuple[Packed, "asyncio.Future[Any]"]

# Redis serves one command at a time: a larger group would keep other clients waiting without saving anything more.
MOST_AT_ONCE = 256


class Group:
    """Runs verbs on an asyncio client, many per round trip. Close it when done; a lost connection is made anew."""

    def __init__(self, client: "redis.asyncio.Redis") -> None:
        self.client = client
        self._pool: Any = client.connection_pool
        self._connection: Any = None
        self._waiting: list[Sent] = []
        self._sending: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._teaching: asyncio.Task[ResponseError | None] | None = None
        self.round_trips = 0

    async def run(self, op: Op[T]) -> T:
        """The op's value or its error. A caller that is cancelled gives up the reply, not the command."""
        reply = await self._send(op.command)
        if is_unknown(reply):
            # Nothing of a transition that was not found has happened, so it may simply be sent again.
            refusal = await self._teach()
            reply = await self._send(op.command)
            if refusal and is_unknown(reply):
                reply = refusal
        return result(op, reply)

    async def run_all(self, ops: Sequence[Op[Any]]) -> list[Any]:
        """The value or the error of each op, all in one round trip."""
        return await asyncio.gather(*(self.run(op) for op in ops), return_exceptions=True)

    async def close(self) -> None:
        """Waits for what is under way and gives the connection back."""
        while under_way := [task for task in (self._sending, self._reading) if task and not task.done()]:
            await asyncio.wait(under_way)
        if self._connection:
            connection, self._connection = self._connection, None
            await self._pool.release(connection)

    async def _teach(self) -> ResponseError | None:
        """Loads the scripts once, however many callers miss them at the same time; why the server would not learn."""
        if self._teaching is None:
            self._teaching = asyncio.create_task(self._load(), name="postroom-teach")
        return await asyncio.shield(self._teaching)

    async def _load(self) -> ResponseError | None:
        try:
            return first_refusal(await asyncio.gather(*(self._send(command) for command in loading())))
        finally:
            self._teaching = None

    def _send(self, command: Command) -> "asyncio.Future[Any]":
        # Packed here, so that what cannot be packed fails its caller and nobody else in the group.
        packed = pack(command)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((packed, reply))
        self._ensure_flush()
        return reply

    def _ensure_flush(self) -> None:
        # One that was cancelled before its first turn is done without ever having said so.
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._exchange(), name="postroom-group")

    async def _exchange(self) -> None:
        """Sends what waits as one group, then reads its replies while the next group is sent."""
        group, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
        async with self._accountable(group):
            try:
                sent = [*calls(packed for packed, _ in group)]
                connection = await self._write(sent)
                if self._reading:
                    await asyncio.wait([self._reading])
                if connection is not self._connection:
                    raise RedisConnectionError("the connection was lost with the group before")
                self._reading = self._sending
            finally:
                self._sending = None
                if self._waiting:
                    self._ensure_flush()
            try:
                callers = iter(group)
                for call in sent:
                    # The replies first: zip must not take a caller for whom there is none.
                    for value, (_, reply) in zip(call.replies(await read_reply(connection)), callers, strict=False):
                        _settle(reply, value)
            finally:
                self._reading = None

    async def _write(self, sent: list[Call]) -> Any:
        if self._connection is None:
            if self._reading:  # the pool may give us the same one again, and its old replies must be given up first
                await asyncio.wait([self._reading])
            self._connection = await self._pool.get_connection()
        connection = self._connection
        await send(connection, b"".join([call.sent for call in sent]))
        self.round_trips += 1
        return connection

    @asynccontextmanager
    async def _accountable(self, group: "list[Sent]") -> AsyncIterator[None]:
        """Nobody waits for ever: whatever goes wrong, every caller of the group hears of it."""
        try:
            yield
        except Exception as error:
            # Whether these were executed is unknown: the verbs that may be retried say so.
            await self._give_up(group, error)
        except BaseException:
            await self._give_up(group, RedisConnectionError("the event loop is going down"))
            raise

    async def _give_up(self, group: "list[Sent]", error: Exception) -> None:
        for _, reply in group:
            _settle(reply, error)
        if self._connection:
            connection, self._connection = self._connection, None
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)


async def run_alone(client: "redis.asyncio.Redis", op: Op[T]) -> T:
    """Runs an op that blocks, on a connection of its own that is thrown away if the caller gives up."""
    pool: Any = client.connection_pool
    connection = await pool.get_connection()
    try:
        await send(connection, pack(op.command).alone)
        return result(op, await read_reply(connection))
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    finally:
        await pool.release(connection)


def _settle(reply: "asyncio.Future[Any]", value: Any) -> None:
    if not reply.done():
        reply.set_result(value)


async def send(connection: Any, packed: bytes) -> None:
    """Writes to a connection."""
    try:
        await connection.send_packed_command([packed])
    except RuntimeError as error:
        # uvloop's word for a connection that the server has closed a moment ago; redis-py does not know it.
        raise RedisConnectionError(f"the connection is closed: {error}") from error


async def read_reply(connection: Any) -> Any:
    """The next reply, an error among them."""
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error

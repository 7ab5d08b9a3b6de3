"""A provider on a loopback port of its own: answers as it is told to, in every language we speak, and fails likewise.

    python -m tests.worker.model.provider --tokens 100 --pace 0.02

serves one answer to everybody, a token at a time, and prints its address: enough for hundreds of streams at once.
"""

import argparse
import asyncio
import json
import sys
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from tests.worker.model import wires
from tests.worker.model.wires import Answer

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Reaction:
    """How to react to one request: say something, or fail in some way.

    `frames` are sent as the chunks of a stream, cut into pieces of `cut` bytes if that is not 0; after `stall_after`
    frames nothing more comes, after `break_after` frames the connection is gone.
    """

    answer: Answer | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    frames: Iterable[bytes] | None = None
    cut: int = 0
    delay: float = 0.0
    pace: float = 0.0
    stall_after: int | None = None
    break_after: int | None = None


class Provider:
    """The server, in a thread of its own so that any client can be tested against it."""

    def __init__(self, usual: Answer | None = None, pace: float = 0.0) -> None:
        self.asked: list[Asked] = []
        self.streaming = 0
        self.most_streaming = 0
        self.connections = 0
        self.left_early = threading.Event()
        self._usual, self._pace = usual or Answer(("Hello",)), pace
        self._reactions: deque[Reaction] = deque()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="provider", daemon=True)
        self._ready = threading.Event()
        self._over: asyncio.Event
        self.port = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def react(self, *reactions: Reaction | Answer) -> None:
        """What to do with the next requests."""
        self._reactions.extend(each if isinstance(each, Reaction) else Reaction(each) for each in reactions)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        self._over = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._connection(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1024, limit=64 << 20)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # An aborted transport closes its socket in the next turn of the loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._request(reader, writer):
                    pass
        finally:
            writer.transport.abort()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection can serve another."""
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}")
        path = first.split(" ")[1].partition("?")[0]
        self.asked.append(Asked(first.split(" ")[1], headers, body))
        reaction = self._reactions.popleft() if self._reactions else Reaction(self._usual, pace=self._pace)
        if path not in wires.FRAMES:
            reaction = Reaction(status=404, body=wires.refused(wires.CHAT, "not_found", "no such endpoint"))
        working = asyncio.ensure_future(self._react(reaction, path, bool(body.get("stream")), writer))
        # A client that closes while it is being answered has cancelled.
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and working.exception() is None:
                return working.result() and not gone.done()
            self.left_early.set()
            return False
        finally:
            for task in (working, gone):
                task.cancel()
            await asyncio.gather(working, gone, return_exceptions=True)

    async def _react(self, reaction: Reaction, path: str, stream: bool, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(reaction.delay)
        frames = reaction.frames
        if frames is None and reaction.answer is not None and stream:
            frames = wires.FRAMES[path](reaction.answer)
        if frames is None:
            body = reaction.body if reaction.answer is None else wires.BODIES[path](reaction.answer)
            sent = body if isinstance(body, bytes) else json.dumps(body).encode()
            kind = {"content-type": "application/json", "content-length": str(len(sent))}
            writer.write(_head(reaction, kind) + sent)
            await writer.drain()
            return True
        self.streaming += 1
        self.most_streaming = max(self.most_streaming, self.streaming)
        try:
            kind = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
            writer.write(_head(reaction, kind))
            return await self._stream(reaction, frames, writer)
        finally:
            self.streaming -= 1

    async def _stream(self, reaction: Reaction, frames: Iterable[bytes], writer: asyncio.StreamWriter) -> bool:
        for place, frame in enumerate(frames):
            if place == reaction.break_after:
                return False
            if place == reaction.stall_after:
                await asyncio.sleep(3600)
            size = reaction.cut or len(frame)
            for start in range(0, len(frame), size):
                piece = frame[start : start + size]
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                if reaction.cut:
                    await writer.drain()
            await writer.drain()
            if reaction.pace:
                await asyncio.sleep(reaction.pace)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _head(reaction: Reaction, headers: dict[str, str]) -> bytes:
    reason = REASONS.get(reaction.status, "Whatever")
    lines = [f"HTTP/1.1 {reaction.status} {reason}"]
    lines += [f"{name}: {value}" for name, value in (headers | reaction.headers).items()]
    return "\r\n".join([*lines, "", ""]).encode()


def main() -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds between two tokens")
    given = parser.parse_args()
    with Provider(Answer(("token ",) * given.tokens), given.pace) as provider:
        sys.stdout.write(f"{provider.url}\n")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()

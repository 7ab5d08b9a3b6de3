"""How long a provider's word takes to be readable by somebody who follows the run.

    python benchmarks/relay.py [--streams 200] [--rounds 3]

A provider on loopback streams a word every so often and writes into each when it was sent. One worker process serves
all runs; they begin one after the other, so that as many streams as asked for are always open. The journal of a run
says when each event became readable, by the clock of the same machine. Bars: the first word of half of all streams
within 50 ms, of which 30 ms gather words; no stream starved.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path

from frame import bar

from postroom.dispatcher import Dispatcher
from postroom.mailbox.server import start
from postroom.mailbox.settings import Settings

HERE = Path(__file__).parent
WORDS, PACE_S = 40, 0.1
# A stream is starved when two of its words become readable further apart than this.
STARVED_MS = 1_000


async def _stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers one request with a stream of stamped words."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    await reader.readexactly(length)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
    for place in range(WORDS):
        await asyncio.sleep(PACE_S)
        _say(writer, {"delta": {"content": f"{time.time() * 1000:.1f} "}, "index": 0})
        if place == WORDS - 1:
            _say(writer, {"delta": {}, "index": 0, "finish_reason": "stop"})
        await writer.drain()
    writer.write(b"data: [DONE]\n\n")
    await writer.drain()
    writer.close()


def _say(writer: asyncio.StreamWriter, choice: dict[str, object]) -> None:
    body = {"id": "c", "object": "chat.completion.chunk", "model": "clock", "choices": [choice]}
    writer.write(b"data: " + json.dumps(body).encode() + b"\n\n")


def _provide(tell: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.start_server(_stream, "127.0.0.1", 0, backlog=1024)
        tell.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def provider() -> Iterator[int]:
    """The port of a provider in a process of its own."""
    hear, tell = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_provide, args=(tell,), daemon=True)
    process.start()
    try:
        yield hear.recv()
    finally:
        process.terminate()
        process.join()


@contextmanager
def worker(url: str, port: int, streams: int) -> Iterator[None]:
    """One worker process with a slot for each stream."""
    command = [sys.executable, "-m", "postroom.worker", "worker", "--url", url, "--app", "relay_app:app"]
    environment = {**os.environ, "RELAY_PORT": str(port), "PYTHONPATH": str(HERE)}
    process = subprocess.Popen([*command, "--concurrency", str(streams)], cwd=HERE, env=environment)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def measured(client: Dispatcher, streams: int) -> tuple[list[float], float]:
    """The delay of each stream's first word, and the longest silence of any stream, in milliseconds."""
    tag = uuid.uuid4().hex[:8]
    runs = []
    every, due = WORDS * PACE_S / streams, time.monotonic()
    # Those that begin while the others are not all there yet are not counted.
    for place in range(2 * streams):
        due += every
        time.sleep(max(due - time.monotonic(), 0))
        runs.append(client.submit("clock", "What time is it?", thread=f"{tag}-{place}").run_id)
    firsts, silences = [], []
    for run_id in runs[streams:]:
        client.wait(run_id, timeout=120)
        words = [entry for entry in client.events(run_id, live=False) if entry.event["type"] == "text_delta"]
        firsts.append(words[0].at - float(words[0].event["delta"].split()[0]))
        times = [entry.at for entry in words]
        silences.append(max(later - earlier for earlier, later in pairwise(times)))
    return firsts, max(silences)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--streams", type=int, default=200)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    firsts: list[float] = []
    silence = 0.0
    with (
        tempfile.TemporaryDirectory() as folder,
        start(Settings(data_dir=Path(folder))) as server,
        provider() as port,
        worker(server.url, port, given.streams),
        Dispatcher(server.url) as client,
    ):
        for _ in range(given.rounds):
            found, longest = measured(client, given.streams)
            firsts += found
            silence = max(silence, longest)
    p50, p99 = statistics.median(firsts), statistics.quantiles(firsts, n=100)[98]
    print(f"{given.streams} streams in one worker, {given.rounds} rounds, a word every {PACE_S * 1000:.0f} ms")
    print(f"first word readable after p50 {p50:.0f} ms, p99 {p99:.0f} ms; longest silence {silence:.0f} ms")
    of = f"{len(firsts)} streams"
    held = [
        bar("first word readable, p50 ms", p50, 50, of, most=True),
        bar("longest silence of a stream, ms", silence, STARVED_MS, of, most=True),
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())

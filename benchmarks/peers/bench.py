"""What every contender of `fleet.py` shares: its two jobs, when to begin, when a job began, how submissions are timed.

Standard library only, for it runs inside every peer's own environment. A worker says that it has imported everything
and waits for `go`, so that starting a process is not part of any figure. A job that begins appends the time to a file
of its process, which costs a microsecond and no Redis; `fleet.py` reads that file.
"""

import asyncio
import json
import os
import random
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Protocol

FOLDER = Path(os.environ.get("BENCH_FOLDER", "."))
NAP_S = 0.2
CHUNK = 500
_stamp = struct.Struct("dd")
_file = -1


class Sender(Protocol):
    """A connected client. `bulk` says whether the peer has a way to submit many at once."""

    bulk: bool

    async def one(self, kind: str) -> None: ...

    async def many(self, kind: str, count: int) -> None: ...


def started() -> None:
    """A job has begun: the time, and the CPU time this process has used so far."""
    global _file
    if _file < 0:
        _file = os.open(FOLDER / f"{os.getpid()}.starts", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(_file, _stamp.pack(time.time(), time.process_time()))


def wait_for_go() -> None:
    """Everything is imported."""
    (FOLDER / f"{os.getpid()}.ready").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.002)


# -- what a peer's file is made of -------------------------------------------------------------------------------------


def noop() -> None:
    started()


def nap() -> None:
    started()
    time.sleep(NAP_S)


async def noop_async(context: object = None) -> None:
    started()


async def nap_async(context: object = None) -> None:
    started()
    await asyncio.sleep(NAP_S)


# The jobs by name, for peers that run threads and for those that run an event loop; some hand in a context.
BLOCKING: dict[str, Callable[[], None]] = {"noop": noop, "nap": nap}
ASYNC: dict[str, Callable[..., Coroutine[None, None, None]]] = {"noop": noop_async, "nap": nap_async}


class OneByOne:
    """A client that blocks and has no way to submit many at once: by a job's name, what submits it."""

    bulk = False

    def __init__(self, submit: dict[str, Callable[[], object]]) -> None:
        self.submit = submit

    async def one(self, kind: str) -> None:
        self.submit[kind]()

    async def many(self, kind: str, count: int) -> None:
        raise NotImplementedError


def ready(sender: Sender) -> Callable[[str], AbstractAsyncContextManager[Sender]]:
    """For a client that needs no connecting."""
    return lambda url: nullcontext(sender)


async def together(submit: Callable[[], Awaitable[object]], count: int, at_once: int) -> None:
    """Submits so many in groups of so many."""
    for done in range(0, count, at_once):
        await asyncio.gather(*(submit() for _ in range(min(at_once, count - done))))


def on_uvloop(consume: Callable[[str, int], Coroutine[None, None, object]]) -> Callable[[str, int], None]:
    """A worker that is a coroutine."""
    import uvloop

    def work(url: str, lanes: int) -> None:
        wait_for_go()
        uvloop.run(consume(url, lanes))

    return work


# -- what `fleet.py` has it do -----------------------------------------------------------------------------------------


async def _submit(sender: Sender, kind: str, one_by_one: int, bulk: int) -> dict[str, float]:
    """Seconds for so many jobs one by one and so many in bulk; a peer without bulk submits all of them one by one."""
    took = {}
    began = time.perf_counter()
    for _ in range(one_by_one):
        await sender.one(kind)
    took["one"] = time.perf_counter() - began
    began = time.perf_counter()
    if sender.bulk:
        for done in range(0, bulk, CHUNK):
            await sender.many(kind, min(CHUNK, bulk - done))
        took["many"] = time.perf_counter() - began
    else:
        for _ in range(bulk):
            await sender.one(kind)
    return took


async def _pace(sender: Sender, count: int) -> list[float]:
    """When each of some jobs was submitted, the next one only after the last has begun and the worker is idle again."""
    sent = []
    for number in range(1, count + 1):
        sent.append(time.time())
        await sender.one("noop")
        until = time.monotonic() + 10
        while _begun() < number:
            if time.monotonic() > until:
                raise TimeoutError("the job did not begin within 10 s")
            await asyncio.sleep(0.003)
        await asyncio.sleep(random.uniform(0.01, 0.03))
    return sent


def _begun() -> int:
    return sum(path.stat().st_size for path in FOLDER.glob("*.starts")) // _stamp.size


def main(
    connect: Callable[[str], AbstractAsyncContextManager[Sender]], work: Callable[[str, int], None] | None = None
) -> None:
    """`work URL LANES`, `submit URL KIND ONE BULK` or `pace URL COUNT`; what it found out is one line of JSON."""
    verb, url, *rest = sys.argv[1:]

    async def send() -> object:
        async with connect(url) as sender:
            if verb == "pace":
                return await _pace(sender, int(rest[0]))
            return await _submit(sender, rest[0], int(rest[1]), int(rest[2]))

    if verb == "work" and work:
        work(url, int(rest[0]))
    else:
        sys.stdout.write(json.dumps(asyncio.run(send())) + "\n")

"""Postroom for `loop.py`: submissions, doorbells and a whole worker, in one process and one event loop.

This is the path of a service: each run is submitted by itself, on a thread of its own, rings through an RQ queue, is
claimed, stepped, committed and finished by `postroom.worker.process.Worker`, and its doorbell is answered.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import turns
import uvloop

from postroom.dispatcher import AsyncDispatcher
from postroom.mailbox import keys
from postroom.mailbox.settings import Settings
from postroom.worker.app import Agent, App
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.process import Worker, new_name
from postroom.worker.tools import tool


@tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def app() -> App:
    """One agent that asks for one tool and then answers."""
    asks = {"say": "Let me see.", "calls": [{"name": "add", "arguments": {"a": 2, "b": 3}, "id": turns.CALL}]}
    model = ScriptedModel([asks, turns.ANSWER])
    return App([Agent("clerk", model=model, instructions=turns.ADVICE, tools=[add])])


@asynccontextmanager
async def opened(keep: str, url: str, folder: Path, lanes: int) -> AsyncIterator[turns.Many]:
    """A worker at work; when it has left, every run must have ended with the answer."""
    worker = Worker(url, app(), Settings(), ["default"], lanes, new_name())
    working = asyncio.create_task(worker.run())
    threads: list[str] = []
    async with AsyncDispatcher(url) as dispatcher:

        async def submit(count: int) -> None:
            for _ in range(count):
                thread = f"{worker.name}-{len(threads)}"
                threads.append(thread)
                await dispatcher.submit("clerk", turns.QUESTION, thread=thread)

        async def many(count: int) -> None:
            goal = worker.consumer.answered + count
            shares = [count // lanes + (lane < count % lanes) for lane in range(lanes)]
            await asyncio.gather(*map(submit, shares))
            # A doorbell may ring twice, so the count alone does not say that every run has ended.
            while worker.consumer.answered < goal or await worker.client.zcard(keys.WATCH):
                if working.done():
                    raise RuntimeError("the worker died")
                await asyncio.sleep(0.002)

        yield many
        worker.stop()
        await working
        for thread in threads:
            *_, last = await dispatcher.messages(thread)
            said = last.message["content"][0]["text"]
            if said != turns.ANSWER:
                raise RuntimeError(f"{thread} ended with {said!r}")


if __name__ == "__main__":
    turns.main(opened, uvloop.run)

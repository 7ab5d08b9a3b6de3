"""Agents whose tools do not end when they are told to: in threads, in the event loop."""

import asyncio
import time

from postroom.worker import Agent, App, tool
from postroom.worker.model.scripted import ScriptedModel

LONG_S = 120


@tool(idempotent=True)
def nap() -> str:
    """Sleeps in a thread of ours."""
    time.sleep(LONG_S)
    return "slept"


@tool(idempotent=True)
async def doze() -> str:
    """Sleeps in a thread of asyncio's."""
    await asyncio.to_thread(time.sleep, LONG_S)
    return "slept"


@tool(idempotent=True)
async def cling() -> str:
    """Takes no for no answer."""
    while True:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            continue


@tool(idempotent=True)
async def hog() -> str:
    """Sleeps in the event loop itself, so that its worker hears nothing."""
    time.sleep(LONG_S)  # noqa: ASYNC251 - that is the mistake
    return "slept"


TOOLS = (nap, doze, cling, hog)
app = App([Agent(each.name, model=ScriptedModel([{"calls": [{"name": each.name}]}]), tools=[each]) for each in TOOLS])

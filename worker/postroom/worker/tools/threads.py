"""The threads that plain functions run in, so that one that blocks holds up nobody else."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

THREADS = 32


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="postroom-tool")


async def in_thread(call: Callable[[], Any]) -> Any:
    """What the call returns or raises; it sees the caller's context variables.

    Whoever stops waiting leaves the thread to its work: Python cannot stop it.
    """
    run = contextvars.copy_context().run
    value, error = await asyncio.get_running_loop().run_in_executor(_pool(), run, _caught, call)
    if error is not None:
        raise error
    return value


def _caught(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    # A future refuses StopIteration, and whoever waits for it would wait for ever; a SystemExit would end the process.
    try:
        return call(), None
    except BaseException as error:
        return None, error

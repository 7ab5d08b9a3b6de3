"""What every contender of `loop.py` shares: told how many agent runs to carry out, it does so and says what it took.

Standard library only, for it runs inside every peer's own environment. The process lives as long as the benchmark and
sleeps while others have their turn. Opening and closing what a turn needs is not part of its time.
"""

import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

QUESTION, ADVICE, CALL, ANSWER = "What is 2 + 3?", "Be brief.", "call-1", "It is 5."
# Carries out so many runs.
Many = Callable[[int], Awaitable[None]]
# Opens a contender: what it keeps runs in, the server, a folder that is gone afterwards, how many runs at a time.
Open = Callable[[str, str, Path, int], AbstractAsyncContextManager[Many]]


def in_lanes(one: Callable[[int], Awaitable[str]], lanes: int) -> Many:
    """Many runs made of single ones, each with a number of its own; each must end with the answer."""
    numbers = itertools.count()

    async def many(count: int) -> None:
        left = itertools.islice(numbers, count)

        async def lane() -> None:
            for number in left:
                said = await one(number)
                if said != ANSWER:
                    raise RuntimeError(f"a run ended with {said!r}")

        await asyncio.gather(*(lane() for _ in range(lanes)))

    return many


async def _turn(opened: Open, keep: str, url: str, count: int, lanes: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        async with opened(keep, url, Path(folder), lanes) as many:
            # What is imported or compiled at the first use belongs to nobody's turn.
            await many(lanes)
            cpu, began = time.process_time(), time.perf_counter()
            await many(count)
            return {"took": time.perf_counter() - began, "cpu": time.process_time() - cpu}


def main(opened: Open, run: Callable[..., dict[str, float]] = asyncio.run) -> None:
    """`KEEP URL`, then a line with a number of runs and of lanes per turn; each is answered with a line of JSON."""
    keep, url = sys.argv[1:]
    for line in sys.stdin:
        count, lanes = map(int, line.split())
        sys.stdout.write(json.dumps(run(_turn(opened, keep, url, count, lanes))) + "\n")
        sys.stdout.flush()

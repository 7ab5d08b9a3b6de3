"""Events that leave by themselves: gathered while the server is slow, never queued up behind it."""

import asyncio
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from postroom.mailbox.commit import Owner
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings
from postroom.worker.desk import Active
from postroom.worker.pen import Pen


class SlowGroup:
    """Says what each commit tells, and answers when it is let to."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[list[Any]] = asyncio.Queue()
        self.turns: asyncio.Queue[None] = asyncio.Queue()

    async def run(self, op: Op[Any]) -> Any:
        self.sent.put_nowait([after for before, after in pairwise(op.command) if before == "delta"])
        await self.turns.get()
        return op.parse([b"committed", 0, 0, b"", 0, [], 0])


def test_words_for_a_slow_server_are_gathered_into_the_next_commit() -> None:
    async def speak() -> None:
        group = SlowGroup()
        desk: Any = SimpleNamespace(group=group, settings=Settings())
        pen = Pen(desk, Active(Owner("t", "r", 1), 10_000, time.monotonic() + 60), 1, 1, True)
        pen.tell({"type": "text_delta", "delta": "a"})
        assert await group.sent.get() == ["a"]
        for word in "bcdef":
            pen.tell({"type": "text_delta", "delta": word})
            # Its time has come, while the first one is still under way.
            pen._forget_timer()
            pen._gathered(0)
        group.turns.put_nowait(None)
        assert await group.sent.get() == ["bcdef"]
        group.turns.put_nowait(None)
        await pen.rest()
        assert group.sent.empty()

    asyncio.run(asyncio.wait_for(speak(), 5))

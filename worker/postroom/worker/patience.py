"""Saying a thing again while the server does not answer; for what counts once however often it is said."""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import TypeVar

from postroom.mailbox.connect import LOST_CONNECTION
from postroom.mailbox.group import Group
from postroom.mailbox.ops import Op

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0


async def persist(group: Group, op: Op[T], what: str, once_more: Callable[[], bool]) -> T:
    """The op's value, once the server answers; its lost connection, when there is no `once_more`."""
    pause = FIRST_PAUSE_S
    while True:
        try:
            return await group.run(op)
        except LOST_CONNECTION as error:
            if not once_more():
                raise
            log.warning("%s: %s, trying again", what, error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
            pause = min(pause * 2, LONGEST_PAUSE_S)

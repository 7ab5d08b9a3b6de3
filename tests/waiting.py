"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(condition: Callable[[], Found], within: float, what: str, every: float = 0.01) -> Found:
    """The first result that counts; the test fails when there is none in time."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what}")
        time.sleep(every)
    return found

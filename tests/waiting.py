"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], seconds: float = 15.0) -> None:
    """Returns when the condition holds; fails when it does not in time."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)

"""Libraries of functions that a server was taught: one per version of Postroom, dropped when long out of use."""

from typing import Any

from postroom.mailbox import keys, scripts
from postroom.mailbox.ops import Op

# Whoever still uses one that was dropped teaches it again, so this need not be right, only seldom wrong.
KEPT_MS = 7 * 86_400_000


def in_use(now: int) -> Op[int]:
    """Says that this version is in use."""
    return Op(("ZADD", keys.LIBRARIES, now, scripts.library().name), int)


def outdated(now: int) -> Op[list[str]]:
    """Those of which nobody has said so for long."""
    command = ("ZRANGEBYSCORE", keys.LIBRARIES, "-inf", f"({now - KEPT_MS}")
    return Op(command, lambda reply: [name.decode() for name in reply])


def forget(name: str) -> list[Op[Any]]:
    """The commands that drop one."""
    return [Op(("FUNCTION", "DELETE", name), bytes), Op(("ZREM", keys.LIBRARIES, name), int)]

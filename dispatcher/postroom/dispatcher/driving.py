"""Running a plan: its ops go out as it yields them, their outcomes come back in."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from postroom.dispatcher.plans import Plan
from postroom.mailbox import ops
from postroom.mailbox.ops import Op

if TYPE_CHECKING:
    import redis

T = TypeVar("T")
Values = Callable[[list[Op[Any]]], Awaitable[list[Any]]]


async def drive(plan: Plan[T], values: Values) -> T:
    """What the plan comes to; `values` is what runs a list of ops."""
    try:
        wanted = next(plan)
        while True:
            made = list(wanted)
            wanted = plan.send(await values(made) if made else [])
    except StopIteration as done:
        found: T = done.value
        return found


def drive_here(plan: Plan[T], client: "redis.Redis") -> T:
    """The same on a client that blocks."""
    try:
        wanted = next(plan)
        while True:
            wanted = plan.send(ops.run_all(client, wanted) if wanted else [])
    except StopIteration as done:
        found: T = done.value
        return found

"""Events of a background task's own, sent to its owner while it works: progress, findings, questions."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from postroom.mailbox.contracts import Parent
from postroom.worker.core.tasks import derived
from postroom.worker.loop import Pen, Standing
from postroom.worker.tools.base import nowhere

Emit = Callable[[str, Any], Awaitable[None]]


def emitter(standing: Standing, pen: Pen, call_id: str) -> Emit:
    """How a call tells its task's owner something at once; told again after a crash it is told once."""
    parent = standing.request.get("parent") or {}
    if parent.get("reports") != "mail":
        return nowhere
    owner = Parent.model_validate(parent)
    numbers = itertools.count(1)

    async def emit(event_type: str, payload: Any = None) -> None:
        mail = derived("event-", f"{standing.run_id}/{standing.step}/{call_id}/{next(numbers)}")
        await pen.dispatcher.tell_owner(owner, standing.run_id, mail, event_type, payload)

    return emit

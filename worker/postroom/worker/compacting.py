"""Compaction: a model sums up the older part of a thread, beside the run, one summary at a time."""

import asyncio
import logging

from postroom.worker.core import compaction
from postroom.worker.core.compaction import CompactionPolicy, Skipped, Summary
from postroom.worker.loop import Pen
from postroom.worker.model.base import Model, Options, Request
from postroom.worker.model.reply import Listener

log = logging.getLogger(__name__)


class Compaction:
    """At most one summary in the making; it lives as long as the activation that began it."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Summary | None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a summary is being made."""
        return self._task is not None

    def start(self, model: Model, plan: compaction.Plan, policy: CompactionPolicy, pen: Pen) -> None:
        """Begins a summary."""
        pen.tell(_activity({"state": "started", "from": plan.from_seq, "to": plan.to_seq}))
        self._task = asyncio.create_task(_summary(model, plan, policy, pen))

    async def outcome(self, wait: bool = True) -> Summary | None:
        """The summary in the making, if there is one and it worked out; without waiting only if it is there."""
        if self._task is None or not (wait or self._task.done()):
            return None
        task, self._task = self._task, None
        return await task

    def give_up(self) -> None:
        """Drops the summary in the making."""
        if self._task:
            self._task.cancel()
            self._task = None


async def _summary(model: Model, plan: compaction.Plan, policy: CompactionPolicy, pen: Pen) -> Summary | None:
    listener = Listener()
    request = Request(
        compaction.request(plan, policy), options=Options(max_tokens=policy.summary_max_tokens, cache_prompt=False)
    )
    try:
        async for part in model.stream(request):
            listener.hear(part)
    except Exception as error:
        # Without a summary the thread is only longer; the next step will try again.
        log.exception("a summary could not be made")
        pen.tell(_activity({"state": "failed", "reason": type(error).__name__}))
        return None
    made = compaction.accept(plan, listener.reply().text, policy)
    if isinstance(made, Skipped):
        pen.tell(_activity({"state": "skipped", "reason": made.reason}))
        return None
    pen.tell(_activity({"state": "compacted", "from": plan.from_seq, "to": plan.to_seq, "saved": made.saved}))
    return made


def _activity(content: dict[str, object]) -> dict[str, object]:
    return {"type": "activity_snapshot", "message_id": "compaction", "activity_type": "compaction", "content": content}

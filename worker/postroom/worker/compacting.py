"""Compaction: a model sums up the older part of a thread, beside the run, one summary at a time."""

import asyncio
import logging

from postroom.worker.loop import Plain, Summary
from postroom.worker.model.base import Model, Options, Request
from postroom.worker.model.reply import Listener

log = logging.getLogger(__name__)


class Compaction:
    """At most one summary in the making."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Summary | None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a summary is being made."""
        return self._task is not None

    def start(self, model: Model, messages: tuple[Plain, ...], covers: tuple[int, int], max_tokens: int) -> None:
        """Begins a summary of what lies between two sequence numbers."""
        self._task = asyncio.create_task(_summary(model, messages, covers, max_tokens))

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


async def _summary(
    model: Model, messages: tuple[Plain, ...], covers: tuple[int, int], max_tokens: int
) -> Summary | None:
    listener = Listener()
    try:
        async for part in model.stream(Request(messages, options=Options(max_tokens=max_tokens))):
            listener.hear(part)
    except Exception:
        # Without a summary the thread is only longer; the next step will try again.
        log.exception("a summary could not be made")
        return None
    text = listener.reply().text.strip()
    if not text:
        return None
    words = f"<conversation-summary>\n{text}\n</conversation-summary>"
    message: Plain = {"role": "system", "content": [{"type": "text", "text": words}], "visibility": "internal"}
    return Summary(message, covers)

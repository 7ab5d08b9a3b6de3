"""A town some of whose agents are elsewhere."""

from typing import Any

from postroom.worker.app import App
from postroom.worker.model.resolve import default
from tests.worker.loop.office import Plain, in_order, valid
from tests.worker.together.town import Town


class Abroad(Town):
    """Closes the connections to remote agents with the event loop they belong to."""

    def __init__(self, url: str, app: App, **settings: Any) -> None:
        super().__init__(url, app, **settings)

    async def _serve(self, *about: Any, **more: Any) -> bool:
        try:
            return await super()._serve(*about, **more)
        finally:
            await default().close()

    def ended(self, run: str) -> tuple[str, str | None, str | None]:
        """How the run ended; its history is whole and it was told of in order."""
        record = self.record(run)
        assert record.status == "done", record
        valid(self.log(record.thread_id))
        types = [kind for kind in self.types(run) if kind != "child_event"]
        in_order(types)
        assert types.count("run_finish") == 1
        return record.termination.kind, record.termination.code, record.termination.message

    def told(self, run: str) -> str:
        """The words of the last step, as somebody who follows the run has them."""
        words = ""
        for event in self.events(run):
            if event["type"] in ("stream_reset", "step_start"):
                words = ""
            words += event.get("delta", "") if event["type"] == "text_delta" else ""
        return words

    def finish(self, run: str) -> Plain:
        """The run's last event."""
        return self.events(run)[-1]

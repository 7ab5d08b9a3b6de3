"""The page on agents that work together says what is true: its examples run, and what they assert holds."""

import re
from pathlib import Path
from typing import Any

from postroom.worker.app import App
from tests.worker.loop.office import text
from tests.worker.remote.abroad import Abroad
from tests.worker.remote.agent import RemoteAgent

PAGE = Path(__file__).parents[3] / "docs" / "multi-agent.md"


class Example(Abroad):
    """A town as the page speaks of it."""

    def __enter__(self) -> Any:
        return self

    @property
    def client(self) -> Any:
        return self.dispatcher

    def submit(self, agent: str = "", words: str = "", **more: Any) -> str:  # type: ignore[override]  # as the client has it
        return super().submit(words, agent, **more)

    def answer(self, run: str) -> str:
        return text(self.log(self.record(run).thread_id)[-1])

    def results(self, run: str) -> list[Any]:
        return self.tool_results(self.record(run).thread_id)

    def task_events(self, run: str) -> list[Any]:
        noted = [message.get("metadata", {}).get("task_event") for message in self.log(self.record(run).thread_id)]
        return [event for event in noted if event]

    def said(self, thread: str) -> list[str]:
        return [text(message) for message in self.log(thread)]


def test_the_examples_run(server_url: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5

    def town(app: App) -> Example:
        return Example(server_url, app)

    with RemoteAgent() as remote:
        known: dict[str, Any] = {"__name__": "docs", "town": town, "remote_url": remote.url}
        for block in blocks:
            exec(compile(block, PAGE.name, "exec"), known)

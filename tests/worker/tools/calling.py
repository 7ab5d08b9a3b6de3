"""Calls a tool as the loop does, without a loop."""

import asyncio
from typing import Any

from postroom.worker.core.calls import Outcome
from postroom.worker.tools.base import Tool, ToolContext
from postroom.worker.tools.execute import execute


def context(**known: Any) -> ToolContext:
    """What a tool is told in tests, apart from what the test says itself."""
    usual: dict[str, Any] = {
        "thread_id": "t", "run_id": "r", "agent": "a", "step": 1, "call_id": "c", "tool": "x"
    }  # fmt: skip
    return ToolContext(**usual | known)


def called(tool: Tool, arguments: dict[str, Any] | str | None = None, **known: Any) -> Outcome:
    """What becomes of one call."""
    return asyncio.run(execute(tool, arguments, context(tool=tool.name, **known)))


def reason(outcome: Outcome) -> str:
    """The code of a failure."""
    return str(outcome.data["error"]["code"])

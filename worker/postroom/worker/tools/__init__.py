"""Tools: what they are, how they are run, and the ones that come with the house."""

from postroom.worker.tools.base import Approval, Retry, Tool, ToolContext
from postroom.worker.tools.define import tool
from postroom.worker.tools.errors import ToolFailed
from postroom.worker.tools.results import Finish, Handoff, Output, Suspend

__all__ = [
    "Approval",
    "Finish",
    "Handoff",
    "Output",
    "Retry",
    "Suspend",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "tool",
]

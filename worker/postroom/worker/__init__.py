"""The runtime: what a user writes agents with, and the process that serves them."""

from postroom.worker.agent import Agent, Behaviour
from postroom.worker.app import App
from postroom.worker.tools import Approval, Finish, Handoff, Output, Suspend, ToolContext, ToolFailed, tool

__all__ = [
    "Agent",
    "App",
    "Approval",
    "Behaviour",
    "Finish",
    "Handoff",
    "Output",
    "Suspend",
    "ToolContext",
    "ToolFailed",
    "tool",
]

"""The runtime: what a user writes agents with, and the process that serves them."""

from postroom.mailbox.backends import A2A
from postroom.mailbox.specs import Behaviour
from postroom.worker.agent import Agent
from postroom.worker.app import App
from postroom.worker.tools import Approval, Finish, Handoff, Output, Suspend, ToolContext, ToolFailed, tool

__all__ = [
    "A2A",
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

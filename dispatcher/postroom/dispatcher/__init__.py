"""The client that other services import, and the commands an operator types."""

from postroom.dispatcher.client import AsyncDispatcher, Dispatcher
from postroom.mailbox.contracts import Decision, Message, RunRequest, message
from postroom.mailbox.specs import AgentSpec

__all__ = ["AgentSpec", "AsyncDispatcher", "Decision", "Dispatcher", "Message", "RunRequest", "message"]

"""The actions every loop handles: what a model is shown in one step, beyond what the log says."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from postroom.worker.core.command import Action, Phase

EXCLUDE_TOOL = "exclude_tool"
INCLUDE_ONLY_TOOLS = "include_only_tools"
ADD_CONTEXT_MESSAGE = "add_context_message"


class Target(StrEnum):
    """Where a context message stands in the request."""

    SYSTEM = "system"
    SESSION = "session"
    CONVERSATION = "conversation"
    SUFFIX_SYSTEM = "suffix_system"


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """Words for the model that never enter the log.

    One of the same key takes the place of the earlier; with a cooldown it is taken again only when its words changed or
    that many steps have passed. A persistent one is shown in every step to come.
    """

    key: str
    content: str
    target: Target = Target.SUFFIX_SYSTEM
    role: str = "system"
    cooldown_turns: int = 0
    persistent: bool = False
    consume_after_emit: bool = True
    priority: int = 0

    def as_plain(self) -> dict[str, Any]:
        """As an action carries it."""
        return asdict(self) | {"target": self.target.value}


def exclude_tool(name: str) -> Action:
    """Hides a tool from the model in the step to come."""
    return Action(Phase.BEFORE_INFERENCE, EXCLUDE_TOOL, name)


def include_only_tools(names: list[str]) -> Action:
    """Shows the model these tools only; what several ask for is shown together."""
    return Action(Phase.BEFORE_INFERENCE, INCLUDE_ONLY_TOOLS, names)


def add_context_message(message: ContextMessage) -> Action:
    """Tells the model something before the next answer."""
    return Action(Phase.BEFORE_INFERENCE, ADD_CONTEXT_MESSAGE, message.as_plain())

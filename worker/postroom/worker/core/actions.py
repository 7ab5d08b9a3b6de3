"""The actions every loop handles: what a model is shown in one step, beyond what the log says."""

from typing import Any

from postroom.worker.core.command import Action, Phase
from postroom.worker.core.context_messages import ContextMessage

EXCLUDE_TOOL = "exclude_tool"
INCLUDE_ONLY_TOOLS = "include_only_tools"
ADD_CONTEXT_MESSAGE = "add_context_message"
SET_INFERENCE_OVERRIDE = "set_inference_override"


def exclude_tool(name: str) -> Action:
    """Hides a tool from the model in the step to come."""
    return Action(Phase.BEFORE_INFERENCE, EXCLUDE_TOOL, name)


def include_only_tools(names: list[str]) -> Action:
    """Shows the model these tools only; what several ask for is shown together."""
    return Action(Phase.BEFORE_INFERENCE, INCLUDE_ONLY_TOOLS, names)


def add_context_message(message: ContextMessage) -> Action:
    """Tells the model something before the next answer."""
    return Action(Phase.BEFORE_INFERENCE, ADD_CONTEXT_MESSAGE, message.as_dict())


def set_inference_override(**options: Any) -> Action:
    """Changes how the next answer is asked for: temperature, top_p, max_tokens, reasoning_effort, upstream_model."""
    return Action(Phase.BEFORE_INFERENCE, SET_INFERENCE_OVERRIDE, options)

"""Agents as tools: a call starts a child and waits behind a ticket that the child's end answers."""

import re

from postroom.mailbox.contracts import ResumeMode, Risk, Ticket
from postroom.worker.core.calls import Outcome
from postroom.worker.core.command import Command
from postroom.worker.core.delegation import ACTION, PREFIX, TOOL_PREFIX
from postroom.worker.core.tasks import derived
from postroom.worker.tools.base import Plain, Tool, ToolContext
from postroom.worker.tools.children import Nursery
from postroom.worker.tools.errors import InvalidArguments

PARAMETERS: Plain = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "description": "What the agent is to do, with all it must know."}},
    "required": ["prompt"],
    "additionalProperties": False,
}


def tool_name(agent: str) -> str:
    """The tool that stands for an agent; models take fewer characters than agents' names have."""
    return TOOL_PREFIX + re.sub(r"[^A-Za-z0-9_-]", "_", agent)


def delegate(agent: str, description: str, nursery: Nursery) -> Tool:
    """The tool that lets an agent work on a prompt and gives back its answer."""

    def check(arguments: Plain) -> str:
        prompt = arguments.get("prompt")
        if not isinstance(prompt, str) or not prompt.strip():
            raise InvalidArguments("prompt must be a text that says what is to be done")
        return prompt

    async def run(prompt: str, context: ToolContext) -> Outcome:
        if refused := nursery.refusal(context):
            return refused
        child = derived("sub-", context.idempotency_key)
        ticket = Ticket(
            id=f"{PREFIX}{child}",
            call_id=context.call_id,
            tool=context.tool,
            arguments={"prompt": prompt},
            action=ACTION,
            message=f"{agent} is at work as run {child}",
            risk=Risk.SAFE,
            resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
        )
        errand = nursery.birth(context, child, agent, prompt, "answer")
        return Outcome("pending", message=ticket.message, ticket=ticket, command=Command(errands=(errand,)))

    words = f"Lets the agent {agent} do something and gives back its answer."
    return Tool(tool_name(agent), f"{words} {description}".rstrip(), PARAMETERS, run, check, idempotent=True)

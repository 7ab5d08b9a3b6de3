"""Frontend tools: described in the request, carried out by the client, whose answer is the result."""

from postroom.mailbox.contracts import FrontendTool, ResumeMode
from postroom.worker.core.calls import Outcome
from postroom.worker.tools.base import Plain, Tool, ToolContext
from postroom.worker.tools.results import Suspend, outcome_of


def frontend_tool(descriptor: FrontendTool) -> Tool:
    """The tool that asks the client; whoever carries calls out takes the decision as the result."""
    asked = Suspend(
        f"{descriptor.name} is carried out by the client",
        action=f"tool:{descriptor.name}",
        resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
    )

    async def run(arguments: Plain, context: ToolContext) -> Outcome:
        return outcome_of(asked, arguments, context)

    return Tool(descriptor.name, descriptor.description, descriptor.parameters, run, idempotent=True)

"""What fleets under fire serve: agents that write to each other, and agents that let others work."""

import json
from typing import Any

from postroom.worker import Agent, App, tool
from postroom.worker.core.context import ContextPolicy
from postroom.worker.model.base import Request
from postroom.worker.model.scripted import ScriptedModel

AT_ONCE = 3
LEVELS = 3


def _words(message: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in message.get("content", ()))


def postman(request: Request) -> Any:
    """Sends what the plan says, a few at a time, whatever comes in meanwhile; then answers what is left to answer."""
    plans = [json.loads(_words(each)) for each in request.messages if _words(each).startswith('{"send"')]
    planned = plans[0]["send"] if plans else []
    sent = sum(len(each.get("tool_calls", ())) for each in request.messages)
    if sent >= len(planned):
        return "Read."
    return {
        "calls": [
            {
                "name": "send_message",
                "id": f"send-{sent + place}",
                "arguments": {"to": {"relation": "agent", "thread_id": to}, "message": words},
            }
            for place, (to, words) in enumerate(planned[sent : sent + AT_ONCE])
        ]
    }


def boss(request: Request) -> Any:
    """Lets as many helpers work as the first word says."""
    if any(each["role"] == "tool" for each in request.messages):
        return "All done."
    count = int(_words(request.messages[0]))
    return {"calls": [{"name": "agent_run_helper", "arguments": {"prompt": f"part {i}"}} for i in range(count)]}


def helper(request: Request) -> Any:
    """Takes its time."""
    return {"say": f"did {_words(request.messages[0])}", "delay": 0.3}


@tool(needs_approval=True, idempotent=True)
def sign() -> str:
    """Somebody is asked first."""
    return "signed"


def clerk(request: Request) -> Any:
    """Needs a signature."""
    if any(each["role"] == "tool" for each in request.messages):
        return "Signed."
    return {"calls": [{"name": "sign"}]}


def passing_on(to: str) -> ScriptedModel:
    """Lets one other agent work."""
    call = {"name": f"agent_run_{to}", "arguments": {"prompt": "go on"}}
    return ScriptedModel(lambda request: "Passed on." if len(request.messages) > 1 else {"calls": [call]})


wide = ContextPolicy(max_context_tokens=10_000_000)
app = App(
    [
        Agent("postman", model=ScriptedModel(postman), tools=["send_message"], max_rounds=0, context=wide),
        Agent("boss", model=ScriptedModel(boss), delegates=["helper"]),
        Agent("helper", model=ScriptedModel(helper)),
        Agent("manager", model=passing_on("clerk"), delegates=["clerk"]),
        Agent("clerk", model=ScriptedModel(clerk), tools=[sign]),
        *(Agent(f"a{n}", model=passing_on(f"a{n + 1}"), delegates=[f"a{n + 1}"]) for n in range(LEVELS)),
        Agent(f"a{LEVELS}", model=ScriptedModel([{"say": "never", "delay": 600}])),
    ]
)

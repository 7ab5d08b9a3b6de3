"""The agents of the demo: real loops with tools, approvals, delegation and mail, on models that follow a script."""

import asyncio

from postroom.worker import Agent, App, Approval, tool
from postroom.worker.model.scripted import ScriptedModel


@tool
async def lookup(order_id: str) -> dict[str, object]:
    """Finds an order."""
    return {"order": order_id, "item": "a teapot", "euros": 20, "state": "broken on arrival"}


@tool(idempotent=True, needs_approval=Approval("Refund 20 euros for order 7?", action_key="refund"))
async def refund(order_id: str, euros: int) -> str:
    """Pays money back."""
    return f"{euros} euros for order {order_id} are on their way."


@tool(idempotent=True)
async def ponder(seconds: float) -> str:
    """Thinks for a while."""
    await asyncio.sleep(seconds)
    return "pondered"


def _calls(say: str, name: str, **arguments: object) -> dict[str, object]:
    return {"say": say, "chunk": 6, "pause": 0.02, "calls": [{"name": name, "arguments": arguments}]}


app = App(
    [
        Agent(
            "storyteller",
            model=ScriptedModel(
                [_calls("Once upon a time a worker died, ", "ponder", seconds=2), "and nobody noticed."]
            ),
            tools=[ponder],
        ),
        Agent(
            "support",
            model=ScriptedModel(
                [
                    _calls("Let me look at your order. ", "lookup", order_id="7"),
                    _calls("I ask our accountant. ", "agent_run_accountant", prompt="May order 7 be refunded?"),
                    _calls("You shall have your money back. ", "refund", order_id="7", euros=20),
                    "Done: the money is on its way. And the warehouse just wrote that teapots are back.",
                ]
            ),
            instructions="You help customers of a shop.",
            tools=[lookup, refund],
            delegates=["accountant"],
        ),
        Agent("accountant", model=ScriptedModel(["Yes, 20 euros, but a person must agree."])),
        Agent(
            "warehouse",
            model=ScriptedModel(
                [
                    _calls(
                        "",
                        "send_message",
                        to={"relation": "agent", "thread_id": "order 7"},
                        message="Teapots are back in stock.",
                    ),
                    "I have told support.",
                ]
            ),
            tools=["send_message"],
        ),
    ]
)

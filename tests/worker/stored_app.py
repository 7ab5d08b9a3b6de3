"""An app for stored agents: tools, a model and a plugin to be named, and two agents of its own."""

from typing import Any

from pydantic import BaseModel

from postroom.worker.app import Agent, App
from postroom.worker.model.base import Request
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.plugins.base import Plugin
from postroom.worker.scripted import Scripted
from postroom.worker.tools import tool


@tool(needs_approval=True)
def pay() -> str:
    """Pays."""
    return "paid"


class Level(BaseModel):
    """Settings of the plugin."""

    level: int = 1


class Audit(Plugin):
    """Takes settings and does nothing."""

    id = "audit"
    section = Level


def parrot(request: Request) -> str | dict[str, Any]:
    """Pays when asked to, and otherwise repeats its instructions, so that one sees which it was given."""
    words = ["".join(block["text"] for block in message.get("content", ())) for message in request.messages]
    if request.messages[-1]["role"] == "user" and words[-1] == "pay":
        return {"calls": [{"name": "pay"}]}
    return words[0]


app = App(
    [
        Agent("coded", model="parrot", instructions="coded"),
        Agent("looped", Scripted([{"ask": "Go on?"}, "looped"])),
    ],
    tools=[pay],
    models={"parrot": ScriptedModel(parrot, name="parrot")},
    plugins=[Audit()],
)

"""The agents of the demo. They follow a script; a model takes its place later, the fleet is the same."""

from postroom.worker.app import Agent, App
from postroom.worker.scripted import Scripted

app = App(
    [
        Agent("echo", Scripted()),
        Agent(
            "storyteller",
            Scripted(["Once upon a time ", {"sleep": 2, "say": "a worker died, "}, "and nobody noticed."]),
        ),
        Agent(
            "support",
            Scripted(["Let me see. ", {"ask": "Refund 20 euros for order 7?"}, "Done, the money is on its way."]),
        ),
    ]
)

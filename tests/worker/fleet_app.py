"""What the fleets of these tests serve: one agent that follows whatever script a request brings."""

from postroom.worker.app import Agent, App
from postroom.worker.scripted import Scripted

app = App([Agent("clerk", Scripted())])

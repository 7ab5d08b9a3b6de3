"""The app that tests point workers at."""

from postroom.worker.app import Agent, App
from postroom.worker.scripted import Scripted

app = App([Agent("echo", Scripted()), Agent("careful", Scripted(["hm", {"ask": "pay?"}, "paid"]))])

"""The app that `relay.py` has a worker serve: one agent whose model is the provider on loopback."""

import os

from postroom.worker import Agent, App

app = App([Agent("clock", model=f"openai-compatible:clock@http://127.0.0.1:{os.environ['RELAY_PORT']}/v1")])

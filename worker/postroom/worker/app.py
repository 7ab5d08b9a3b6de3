"""What a user writes: agents, put together in an app that a worker is pointed at."""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.keys import check_name
from postroom.worker.loop import Loop


@dataclass(frozen=True, slots=True)
class Agent:
    """A named way to serve a run."""

    id: str
    loop: Loop


class App:
    """The agents a worker can serve; every mistake in it is found and listed when it is built."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        problems = []
        self.agents: dict[str, Agent] = {}
        for agent in agents:
            try:
                check_name(agent.id, "agent")
            except InvalidInput as error:
                problems.append(error.message)
            if agent.id in self.agents:
                problems.append(f"agent {agent.id!r} is defined twice")
            self.agents[agent.id] = agent
        if problems:
            raise InvalidInput("this app cannot be built: " + "; ".join(problems))

    def loop(self, name: str) -> Loop | None:
        """The loop of the agent of that name, else of the one called `default`."""
        agent = self.agents.get(name) or self.agents.get("default")
        return agent.loop if agent else None


def load(place: str) -> App:
    """The app that `module:name` stands for; the working directory is importable, as with other servers."""
    module_name, _, attribute = place.partition(":")
    if not module_name or not attribute:
        raise InvalidInput(f"--app {place!r} must look like package.module:app")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        raise InvalidInput(f"--app {place!r}: {error}") from None
    except AttributeError:
        raise InvalidInput(f"--app {place!r}: module {module_name} has no {attribute!r}") from None
    if not isinstance(found, App):
        raise InvalidInput(f"--app {place!r} is a {type(found).__name__}, not an App")
    return found

"""Remote agents, and runs that they serve."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from postroom.worker import A2A, Agent, App
from tests.worker.remote.abroad import Abroad
from tests.worker.remote.agent import RemoteAgent

WAYS = [("HTTP+JSON", True), ("HTTP+JSON", False), ("JSONRPC", True), ("JSONRPC", False)]
Hire = Callable[..., Abroad]


def way(given: tuple[str, bool]) -> str:
    """How such an agent is asked and watched, in words."""
    return f"{given[0]}-{'stream' if given[1] else 'poll'}"


@pytest.fixture(scope="module", params=WAYS, ids=way)
def remote(request: pytest.FixtureRequest) -> Iterator[RemoteAgent]:
    """An agent, in each of the ways in which it can be asked and watched."""
    binding, streaming = request.param
    with RemoteAgent(streaming, (binding,)) as agent:
        yield agent


@pytest.fixture(scope="module")
def running() -> Iterator[RemoteAgent]:
    """An agent that is there for all tests of a module."""
    with RemoteAgent() as running:
        yield running


@pytest.fixture
def agent(running: RemoteAgent) -> RemoteAgent:
    """An agent that remembers nothing."""
    running.forget()
    return running


@pytest.fixture
def hire(server_url: str) -> Iterator[Hire]:
    """An office whose clerk is a remote agent; beside others, if some are given."""
    with ExitStack() as offices:

        def make(remote: RemoteAgent, *others: Agent, settings: Any = None, **config: Any) -> Abroad:
            clerk = Agent("clerk", description="Obeys.", backend=A2A(remote.url, **{"poll_s": 0.02, **config}))
            return offices.enter_context(Abroad(server_url, App([clerk, *others]), **(settings or {})))

        yield make

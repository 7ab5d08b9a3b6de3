"""Remote agents served by real processes: they are killed, told to leave and told to stop."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from postroom.mailbox.contracts import RunRequest, message
from tests.waiting import until
from tests.worker.fleet import Fleet
from tests.worker.remote.agent import RemoteAgent

Ask = Callable[[str], RunRequest]


@pytest.fixture
def ask(fleet: Fleet, agent: RemoteAgent) -> Iterator[Ask]:
    """Asks the remote agent, which is made known to workers that are up already."""
    fleet.workers(2)
    fleet.sweeper()
    name = f"remote-{fleet.tag}"
    fleet.dispatcher.put_card(agent.url, agent.described, agent=name)
    yield lambda words: fleet.submit([], agent=name, messages=(message("user", words),))
    fleet.dispatcher.drop_agent(name)


def test_a_worker_that_is_killed_costs_the_agent_nothing(fleet: Fleet, agent: RemoteAgent, ask: Ask) -> None:
    run = ask("hold on")
    until(lambda: agent.requests.count("/tasks/…:subscribe") > 0, 10, "the task is watched")
    os.kill(fleet.alive()[fleet.held(run).worker], signal.SIGKILL)
    until(lambda: agent.requests.count("/tasks/…:subscribe") > 1, 20, "another worker watches it")
    agent.agent.go.set()
    until(lambda: fleet.status(run) == "done", 10, "the run ends")
    assert fleet.run(run).termination.kind == "natural_end"  # type: ignore[union-attr]
    assert agent.words == ["hold on"]


def test_a_cancel_is_heard_there_at_once(fleet: Fleet, agent: RemoteAgent, ask: Ask) -> None:
    run = ask("hold on")
    until(lambda: agent.requests.count("/tasks/…:subscribe") > 0, 10, "the task is watched")
    fleet.dispatcher.cancel(run.run_id)
    until(lambda: agent.agent.cancelled, 2, "the agent hears of it")
    until(lambda: fleet.status(run) == "done", 2, "the run ends")
    assert fleet.run(run).termination.kind == "cancelled"  # type: ignore[union-attr]


def test_a_run_that_waits_abroad_is_cancelled_there(fleet: Fleet, agent: RemoteAgent, ask: Ask) -> None:
    run = ask("input please")
    until(lambda: fleet.status(run) == "waiting", 10, "the agent has a question")
    fleet.dispatcher.cancel(run.run_id)
    until(lambda: fleet.status(run) == "done", 10, "the run ends")
    assert agent.agent.cancelled == [agent.agent.heard[0]["task"]]

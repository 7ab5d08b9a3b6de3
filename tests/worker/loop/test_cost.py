"""What a step costs: how often Redis is asked, and that a late step sends no more than an early one."""

import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from postroom.worker.app import Agent, App
from postroom.worker.core.context import ContextPolicy
from postroom.worker.desk import Desk
from postroom.worker.model.base import Request
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.tools import tool
from tests.worker.loop.office import Office

TRIES = 5
WINDOW = ContextPolicy(max_context_tokens=2_000, max_output_tokens=500)
LONG, SETTLED = 60, 10


@tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def _app(steps: int, look: Callable[[], None] = lambda: None) -> App:
    """An agent that calls a tool in each step but the last; `look` is called as each one begins."""
    taken = 0

    def answer(_: Request) -> Any:
        nonlocal taken
        look()
        taken += 1
        if taken % steps == 0:
            return "It is 5."
        # The ids are of one length, or the bytes would grow with the digits.
        return {"calls": [{"id": f"call-{taken:06}", "name": "add", "arguments": {"a": 2, "b": 3}}]}

    return App([Agent("clerk", model=ScriptedModel(answer), tools=[add], max_rounds=steps + 1, context=WINDOW)])


def _trips(url: str, steps: int) -> int:
    """Round trips of a run behind its claim. A busy machine can only add some, so the least of several counts."""
    with Office(url, _app(steps)) as office:
        found = []
        for _ in range(TRIES):
            desks: list[Desk] = []

            async def beside(desk: Desk, desks: list[Desk] = desks) -> None:
                desks.append(desk)

            office.serve(office.submit(), beside=beside)
            found.append(desks[0].group.round_trips - 1)
        return min(found)


def test_a_step_without_tools_is_one_round_trip(server_url: str) -> None:
    assert _trips(server_url, 1) == 1


@pytest.mark.parametrize("steps", [2, 5])
def test_a_step_with_tools_is_two_round_trips(server_url: str, steps: int) -> None:
    assert _trips(server_url, steps) == 2 * (steps - 1) + 1


def test_a_late_step_sends_no_more_than_an_early_one(server_url: str) -> None:
    received: list[int] = []

    def look() -> None:
        received.append(office.dispatcher.client.info("stats")["total_net_input_bytes"])

    with Office(server_url, _app(LONG, look), lease_ms=600_000) as office:
        run = office.run()
        assert office.record(run).step == LONG
    sent = [later - earlier for earlier, later in pairwise(received)][SETTLED:]
    line = statistics.linear_regression(range(len(sent)), sent)
    assert line.slope * len(sent) < 0.1 * statistics.mean(sent)

"""What a step of the agent loop costs, and whether the five-hundredth costs more than the fiftieth.

One worker's desk and one run at a time. Round trips are counted where they leave the process, commands and bytes where
they reach the server. In the long run the model is shown a window of bounded size, so that what it is sent does not
grow: what is left is the loop's own. Times are medians over several long runs, step by step.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import redis
import uvloop
from frame import bar

from postroom.dispatcher import Dispatcher
from postroom.mailbox.connect import connect_async
from postroom.mailbox.group import Group
from postroom.mailbox.settings import Settings
from postroom.worker.activation import activate
from postroom.worker.app import Agent, App
from postroom.worker.core.context import ContextPolicy
from postroom.worker.desk import Desk
from postroom.worker.model.base import Request
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.tools import tool

# Some forty messages fit; the window is full long before the fit begins.
WINDOW = ContextPolicy(max_context_tokens=3_000, max_output_tokens=1_000)
SETTLED = 60
# Nobody renews it here.
LONG_LEASE = Settings(lease_ms=3_600_000)
GROWTH = 0.10
_OWN = frozenset({"cmdstat_info", "cmdstat_config|resetstat", "cmdstat_evalsha", "cmdstat_fcall"})


@dataclass
class Costs:
    """Round trips and commands of a step without and with tools; per long run and step bytes, seconds, CPU seconds."""

    trips: dict[str, float] = field(default_factory=dict)
    commands: dict[str, float] = field(default_factory=dict)
    sizes: list[float] = field(default_factory=list)
    times: list[list[float]] = field(default_factory=list)
    cpus: list[list[float]] = field(default_factory=list)


@tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def clerk(steps: int, look: Callable[[], None]) -> App:
    """An agent that calls a tool in each step but the last; `look` is called as each one begins."""
    taken = 0

    def answer(_: Request) -> Any:
        nonlocal taken
        look()
        taken += 1
        if taken % steps == 0:
            return "It is 5."
        # All ids are of one length, lest the bytes grow with the digits.
        return {
            "say": "Let me see.",
            "calls": [{"id": f"call-{taken:06}", "name": "add", "arguments": {"a": 2, "b": 3}}],
        }

    agent = Agent("clerk", model=ScriptedModel(answer), tools=[add], max_rounds=steps + 1, context=WINDOW)
    return App([agent])


class Counter:
    """A worker's desk on which runs are carried out one after the other."""

    def __init__(self, url: str, client: redis.Redis) -> None:
        self.url, self.client, self.dispatcher = url, client, Dispatcher(url)

    async def run(self, steps: int, look: Callable[[], None] = lambda: None) -> tuple[int, int]:
        """Round trips and commands of one run behind its claim."""
        client = await connect_async(self.url)
        desk = Desk(Group(client), clerk(steps, look), LONG_LEASE, "bench")
        thread = f"thread-{time.monotonic_ns()}"
        run = self.dispatcher.submit("clerk", "What is 2 + 3?", thread=thread)
        before = 0, 0

        def reach(point: str) -> None:
            nonlocal before
            if point == "claimed":
                before = desk.group.round_trips, self._commands()

        desk.reach = reach
        await activate(desk, thread, run.run_id)
        after = desk.group.round_trips, self._commands()
        await desk.group.close()
        await client.aclose()
        record = self.dispatcher.get_run(run.run_id)
        if record.status != "done" or record.step != steps:
            raise RuntimeError(f"run {run.run_id} is {record.status} after {record.step} steps")
        return after[0] - before[0], after[1] - before[1]

    def _commands(self) -> int:
        stats = self.client.info("commandstats")
        return sum(stat["calls"] for name, stat in stats.items() if name not in _OWN)

    def received(self) -> int:
        """Bytes the server has been sent so far."""
        return int(self.client.info("stats")["total_net_input_bytes"])


async def _measured(counter: Counter, steps: int, repeats: int) -> Costs:
    costs, again = Costs(), 7
    await counter.run(2)
    # A busy machine may only add to these: events of a step that takes more than 30 ms leave before its end.
    words = [await counter.run(1) for _ in range(again)]
    few, many = [[await counter.run(n) for _ in range(again)] for n in (2, 12)]
    for place, found in enumerate((costs.trips, costs.commands)):
        found["words"] = min(each[place] for each in words)
        found["tools"] = (min(each[place] for each in many) - min(each[place] for each in few)) / 10
    sent: list[int] = []
    await counter.run(steps, lambda: sent.append(counter.received()))
    costs.sizes = _differences(sent)
    for _ in range(repeats):
        at: list[float] = []
        used: list[float] = []

        def look(at: list[float] = at, used: list[float] = used) -> None:
            at.append(time.perf_counter())
            used.append(time.process_time())

        await counter.run(steps, look)
        costs.times.append(_differences(at))
        costs.cpus.append(_differences(used))
    return costs


def _differences(values: list[Any]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(values)]


def measure(url: str, client: redis.Redis, *, quick: bool = False) -> Costs:
    """All costs, on a server that nobody else uses."""
    steps, repeats = (150, 2) if quick else (500, 9)
    return uvloop.run(_measured(Counter(url, client), steps, repeats))


def growth(values: list[float]) -> float:
    """How much a straight line through the values rises from the first to the last, as a part of their mean."""
    kept = values[SETTLED:]
    return statistics.linear_regression(range(len(kept)), kept).slope * len(kept) / statistics.mean(kept)


def _together(runs: list[list[float]]) -> list[float]:
    return [statistics.median(step) for step in zip(*runs, strict=True)]


def report(costs: Costs) -> None:
    """The costs of a step, and how they change with its number."""
    print("\na step of the loop, from Redis")
    for kind, words in (("words", "without tools"), ("tools", "with tools")):
        print(f"  {words:<14} {costs.trips[kind]:g} round trips, {costs.commands[kind]:.1f} commands")
    steps = len(costs.sizes) + 1
    print(f"a run of {steps} steps, a line fitted from step {SETTLED} on: rise over the rest as a part of the mean")
    print(f"  bytes sent  {statistics.mean(costs.sizes[SETTLED:]):8,.0f} a step, {growth(costs.sizes):+.1%}")
    for words, runs in (("time", costs.times), ("cpu time", costs.cpus)):
        each = [growth(run) for run in runs]
        middle = _together(runs)[SETTLED:]
        print(
            f"  {words:<11} {statistics.mean(middle) * 1e6:8,.0f} µs a step, {growth(_together(runs)):+.1%} "
            f"(single runs {min(each):+.1%} to {max(each):+.1%}); first tenth "
            f"{statistics.mean(middle[: len(middle) // 10]) * 1e6:,.0f}, last tenth "
            f"{statistics.mean(middle[-(len(middle) // 10) :]) * 1e6:,.0f}"
        )


def bars(costs: Costs) -> bool:
    """What a step may cost."""
    held = [
        bar("round trips of a step without tools", costs.trips["words"], 1, "counted", most=True),
        bar("round trips of a step with tools", costs.trips["tools"], 2, "counted", most=True),
        bar("rise of the bytes a step sends", growth(costs.sizes), GROWTH, "of the mean", most=True),
        bar("rise of the cpu time of a step", growth(_together(costs.cpus)), GROWTH, "of the mean", most=True),
    ]
    return all(held)

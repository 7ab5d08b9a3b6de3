"""The app that `fleet.py` has a worker serve: `echo` repeats what it was told, `nap` takes 200 ms before it does.

Importing it waits until the benchmark says go, so that starting a process is not part of any figure.
"""

import bench

import postroom.worker.process  # noqa: F401 - imported before the start, as everything is
from postroom.worker.app import Agent, App
from postroom.worker.loop import Pen, Standing, Turn
from postroom.worker.scripted import Scripted


class Stamped:
    """Notes that a run has begun, as the peers' jobs do."""

    def __init__(self, loop: Scripted) -> None:
        self.loop = loop

    async def step(self, standing: Standing, pen: Pen) -> Turn:
        """The step of the loop inside."""
        bench.started()
        return await self.loop.step(standing, pen)


app = App(
    [Agent("noop", Stamped(Scripted())), Agent("nap", Stamped(Scripted([{"sleep": bench.NAP_S, "say": "Good."}])))]
)
bench.wait_for_go()

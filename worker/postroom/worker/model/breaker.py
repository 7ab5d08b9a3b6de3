"""A model that is left alone for a while after failing too often."""

import time
from collections.abc import AsyncIterator, Callable

from postroom.worker.model.base import Limits, Model, Part, Request, Stop
from postroom.worker.model.circuit import Circuit, counts
from postroom.worker.model.errors import CircuitOpen, ModelError
from postroom.worker.model.retrying import opened


class Breaker:
    """Refuses at once while the circuit is open; shared by everybody in the process who asks this model."""

    def __init__(
        self, model: Model, circuit: Circuit | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.model = model
        self.circuit = circuit or Circuit()
        self._clock = clock

    @property
    def name(self) -> str:
        """How people call it."""
        return self.model.name

    @property
    def limits(self) -> Limits:
        """What is known of its size and price."""
        return self.model.limits

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        """The answer in parts, or CircuitOpen without asking."""
        if (wait := self.circuit.wait(self._clock())) > 0:
            raise CircuitOpen(f"{self.name}: failed too often, not asked for another {wait:.0f} s", wait)
        self.circuit = self.circuit.passed()
        settled = False
        try:
            async with opened(self.model, request) as parts:
                async for part in parts:
                    if isinstance(part, Stop):
                        self.circuit, settled = self.circuit.succeeded(), True
                    yield part
        except ModelError as error:
            if counts(error) and not settled:
                self.circuit, settled = self.circuit.failed(self._clock()), True
            elif not settled:
                # It answered, if only to refuse.
                self.circuit, settled = self.circuit.succeeded(), True
            raise
        finally:
            if not settled:
                self.circuit = self.circuit.abandoned()

"""A circuit breaker as a value: closed, open for a while after too many failures in a row, then open to one probe."""

from dataclasses import dataclass, replace

from postroom.worker.model.errors import ModelError, RateLimited, Transient


@dataclass(frozen=True, slots=True)
class Circuit:
    """What is known of a model's health; every change gives a new value. Times are seconds of one clock."""

    threshold: int = 5
    cool_down: float = 30.0
    failures: int = 0
    opened_at: float | None = None
    probing: bool = False

    def wait(self, now: float) -> float:
        """Seconds until the next request may pass; 0 when it may now."""
        if self.opened_at is None:
            return 0.0
        left = self.opened_at + self.cool_down - now
        if left > 0:
            return left
        return self.cool_down if self.probing else 0.0

    def passed(self) -> "Circuit":
        """A request went through; if the circuit was open, it is the probe."""
        return replace(self, probing=self.opened_at is not None)

    def succeeded(self) -> "Circuit":
        """The model answered."""
        return replace(self, failures=0, opened_at=None, probing=False)

    def failed(self, now: float) -> "Circuit":
        """The model failed; a failed probe opens the circuit for another while."""
        failures = self.failures + 1
        opens = failures >= self.threshold or self.opened_at is not None
        return replace(self, failures=failures, opened_at=now if opens else None, probing=False)

    def abandoned(self) -> "Circuit":
        """The request was given up by whoever asked, which says nothing about the model."""
        return replace(self, probing=False)


def counts(error: ModelError) -> bool:
    """Whether an error says that the model is out of order: one that tells us when to come back is not."""
    return isinstance(error, Transient) and not isinstance(error, RateLimited)

"""The doorbell: an RQ job saying that a run wants a worker. It may ring twice, late or never; the watch list covers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Doorbell:
    """Which run, on which queue; `number` counts the rings of a run, so each ring is a job of its own."""

    run_id: str
    queue: str
    number: int


def doorbell(raw: Sequence[Any] | None) -> Doorbell | None:
    """A doorbell from a script's reply, if there is one."""
    return Doorbell(raw[0].decode(), raw[1].decode(), int(raw[2])) if raw else None

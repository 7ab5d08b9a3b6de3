"""What is owed to webhooks: written by the very script that ends or suspends a run, settled by whoever delivers it.

A delivery is named for its event, `RUN.NUMBER`, so a receiver that gets it twice can tell. It carries nothing: what is
sent is read from the run's record and its journal.
"""

from dataclasses import dataclass
from typing import Any

from postroom.mailbox import journal, keys
from postroom.mailbox.ops import Op, hash_fields, transition


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event of one run that somebody asked to be told of; `tries` counts this one."""

    id: str
    thread_id: str
    run_id: str
    event: int
    tries: int
    wrong: str = ""


def take(count: int, hidden_ms: int, now: int | None = None) -> Op[list[Delivery]]:
    """Deliveries that are due; nobody else gets them for a while, and if we die with them they are due again."""

    def parse(reply: Any) -> list[Delivery]:
        return [
            Delivery(name.decode(), thread.decode(), run.decode(), int(event), tries)
            for name, thread, run, event, tries in reply
        ]

    return transition("deliver", (keys.OWED,), now, (count, hidden_ms), parse)


def settle(
    delivery_id: str, wrong: str = "", wait_ms: int | None = None, keep_ms: int = 0, now: int | None = None
) -> Op[str]:
    """It was delivered; or something went wrong, and there is another try after `wait_ms` or none at all."""
    args = (delivery_id, wrong, "" if wait_ms is None else wait_ms, keep_ms)
    return transition("settle", (keys.OWED, keys.UNDELIVERED), now, args, bytes.decode)


def event(delivery: Delivery) -> Op[journal.Entry | None]:
    """The event to tell of, unless the journal was trimmed or the run deleted."""
    place = f"{delivery.event}-0"
    command = ("XRANGE", keys.events(delivery.thread_id, delivery.run_id), place, place)
    return Op(command, journal.told_last)


def get(delivery_id: str) -> Op[Delivery | None]:
    """A delivery that is owed or was given up."""

    def found(reply: Any) -> Delivery | None:
        if not reply:
            return None
        data = {name: value.decode() for name, value in hash_fields(reply).items()}
        numbers = (int(data["event"]), int(data.get("tries", 0)))
        return Delivery(delivery_id, data["thread"], data["run"], *numbers, data.get("wrong", ""))

    return Op(("HGETALL", keys.delivery(delivery_id)), found)


def owe_again(delivery_id: str, now: int | None = None) -> Op[bool]:
    """Owes a delivery that was given up once more."""
    return transition("redeliver", (keys.UNDELIVERED, keys.OWED), now, (delivery_id,), bool)


def forget(delivery_id: str) -> list[Op[int]]:
    """The commands that forget a delivery that was given up."""
    return [Op(("ZREM", keys.UNDELIVERED, delivery_id), int), Op(("DEL", keys.delivery(delivery_id)), int)]

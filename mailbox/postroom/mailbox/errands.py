"""Errands: what one thread owes to others. Written by the very step they follow from, carried out after it.

Each counts once however often it is carried out, since each names its own result: a mail, a run, a decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from postroom.mailbox import codec, keys
from postroom.mailbox.ops import Op, counted, hash_fields, on_thread

Plain = dict[str, Any]


class Kind(StrEnum):
    """What is to be done: deliver a letter, submit a run, cancel one, or tell a parent how its child fares."""

    MAIL = "mail"
    SUBMIT = "submit"
    CANCEL = "cancel"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Errand:
    """One errand to the thread `to`, about `run`. `body` is the letter or the request, as plain data.

    `child` is set on a submission that begets a child of the sending run, and says how that will report. `number` is
    its place in the outbox, `tries` how often it was put off, `due` when it may be tried again.
    """

    kind: Kind
    id: str
    to: str
    run: str = ""
    body: Plain = field(default_factory=dict)
    child: str = ""
    code: str = ""
    event: int = 0
    number: int = 0
    at: int = 0
    tries: int = 0
    due: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """An errand that was given up; `place` names it."""

    place: str
    error: str
    errand: Errand


def fields(errand: Errand, limit: int = codec.MAX_BYTES) -> list[Any]:
    """The stream fields of an errand; what an operator wants to see is plain."""
    flat: list[Any] = ["kind", errand.kind.value, "id", errand.id, "to", errand.to]
    for name in ("run", "code", "child"):
        if value := getattr(errand, name):
            flat += (name, value)
    return [*flat, "body", codec.encode(errand.body, limit)] if errand.body else flat


def errand(number: int, flat: Sequence[bytes], tries: int = 0, due: int = 0) -> Errand:
    """An errand from its stream fields."""
    found = hash_fields(flat)
    words = {name: found[name].decode() for name in ("id", "to", "run", "code", "child") if name in found}
    return Errand(
        Kind(found["kind"].decode()),
        body=codec.decode(found["body"]) if "body" in found else {},
        event=int(found.get("event", 0)),
        number=number,
        at=int(found.get("at", 0)),
        tries=tries,
        due=due,
        **words,
    )


def as_data(errand: Errand) -> Plain:
    """An errand that is not in an outbox yet, as plain data."""
    return {name: value for name in _OWN if (value := _plain(getattr(errand, name)))}


def from_data(data: Plain) -> Errand:
    """The errand of plain data."""
    return Errand(**{**data, "kind": Kind(data["kind"])})


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Kind) else value


_OWN = ("kind", "id", "to", "run", "body", "child", "code")


def waiting(thread_id: str, count: int = 1000) -> Op[list[Any]]:
    """The errands of a thread as they lie in its outbox, oldest first: place and fields of each."""
    return Op(("XRANGE", keys.outbox(thread_id), "-", "+", "COUNT", count), list)


def put_off(thread_id: str) -> Op[dict[int, tuple[int, int]]]:
    """Which errands were put off: how often, and until when."""

    def parse(reply: Any) -> dict[int, tuple[int, int]]:
        found = {int(number): value.decode().split(" ") for number, value in hash_fields(reply).items()}
        return {number: (int(tries), int(due)) for number, (tries, due) in found.items()}

    return Op(("HGETALL", keys.outbox_tries(thread_id)), parse)


def read(raw: Sequence[Any], held: dict[int, tuple[int, int]]) -> list[Errand]:
    """The errands of an outbox."""
    numbers = [int(place.partition(b"-")[0]) for place, _ in raw]
    return [errand(number, flat, *held.get(number, (0, 0))) for number, (_, flat) in zip(numbers, raw, strict=True)]


def settle(
    thread_id: str,
    done: Sequence[int] = (),
    later: Sequence[tuple[int, int]] = (),
    lost: Sequence[tuple[int, str]] = (),
    now: int | None = None,
) -> Op[int]:
    """Errands carried out, put off for so many milliseconds, or given up for a reason; says how many are left."""
    flat = [*counted(done), *counted([part for pair in later for part in pair])]
    return on_thread("carried", thread_id, now, [*flat, *counted([part for pair in lost for part in pair])], int)


def undelivered(thread_id: str, count: int = 1000) -> Op[list[Lost]]:
    """Errands that were given up, oldest first."""

    def parse(reply: Any) -> list[Lost]:
        return [Lost(place.decode(), hash_fields(flat)["error"].decode(), errand(0, flat)) for place, flat in reply]

    return Op(("XRANGE", keys.undelivered(thread_id), "-", "+", "COUNT", count), parse)


def replay(thread_id: str, places: Sequence[str] = (), now: int | None = None) -> Op[int]:
    """Tries errands that were given up once more; without places, all of them."""
    return on_thread("recover", thread_id, now, ("replay", *counted(places)), int)


def clear(thread_id: str, places: Sequence[str] = (), now: int | None = None) -> Op[int]:
    """Forgets errands that were given up."""
    return on_thread("recover", thread_id, now, ("clear", *counted(places)), int)

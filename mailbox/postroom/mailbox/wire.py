"""How commands become bytes, and how transitions that leave together become one call.

A call costs the server more than what it says: it has its own transaction in the append-only file, and writes to the
keys that all threads share. Transitions that stand next to each other go as one call, and each has its own reply.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import hiredis
from redis.exceptions import ResponseError

from postroom.mailbox import scripts
from postroom.mailbox.errors import InvalidInput

Command = tuple[str | bytes | int | float, ...]

_pack: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]  # its stub says one argument
# Their replies come together too, when the last is done: twice as many would save 2 % and be answered half as soon.
MOST_TOGETHER = 8
# What is this large is no cheaper in company.
LARGE = 65_536


class Packed(NamedTuple):
    """A command, and the bytes it is sent as if it goes alone."""

    command: Command
    alone: bytes


class Call(NamedTuple):
    """What is sent, and for how many commands its reply is."""

    sent: bytes
    commands: int

    def replies(self, reply: Any) -> Sequence[Any]:
        """The reply to each; what went wrong with the call as a whole went wrong for all."""
        if self.commands == 1:
            return (reply,)
        if isinstance(reply, list) and len(reply) == self.commands:
            return reply
        error = reply if isinstance(reply, Exception) else ResponseError(f"an odd reply to several calls: {reply!r}")
        return (error,) * self.commands


def pack(command: Command) -> Packed:
    """A command as bytes; redis-py's asyncio client would do this in Python, which was most of a commit's cost."""
    try:
        return Packed(command, _pack(command))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"this cannot be sent to Redis: {error}") from None


def pack_all(commands: Iterable[Command]) -> bytes:
    """Commands as the bytes of one write, each alone."""
    return b"".join([pack(command).alone for command in commands])


def calls(commands: Iterable[Packed]) -> Iterator[Call]:
    """Commands in their order, neighbours together where that is possible."""
    company: list[Packed] = []
    for each in commands:
        if len(company) == MOST_TOGETHER or (company and not _sociable(each)):
            yield _joined(company)
            company = []
        if _sociable(each):
            company.append(each)
        else:
            yield Call(each.alone, 1)
    if company:
        yield _joined(company)


def _sociable(packed: Packed) -> bool:
    command = packed.command
    return command[0] == "FCALL" and command[1] in _openings() and len(packed.alone) < LARGE


def _joined(company: Sequence[Packed]) -> Call:
    if len(company) == 1:
        return Call(company[0].alone, 1)
    parts = [_part(each) for each in company]
    words = sum(len(each.command) - 1 for each in company)
    head = b"*%d\r\n%s" % (3 + words, _words("FCALL", scripts.function(scripts.SEVERAL), 0))
    return Call(head + b"".join(parts), len(company))


def _part(packed: Packed) -> bytes:
    """A transition's name, how many arguments it has, and what it is sent with: key, clock, arguments."""
    command, alone = packed
    name, opening = _openings()[command[1]]
    after_length = alone.index(b"\n") + 1
    return name + _words(len(command) - 4) + alone[after_length + opening :]


@cache
def _openings() -> dict[Any, tuple[bytes, int]]:
    """By what the server calls it: a transition's name as it is sent, and how long the words before its key are."""
    return {
        function: (_words(name), len(_words("FCALL", function, 1)))
        for name in scripts.TOGETHER
        for function in (scripts.function(name),)
    }


def _words(*words: str | int) -> bytes:
    """Some words of a command, without how many there are."""
    packed = _pack(words)
    return packed[packed.index(b"\n") + 1 :]

"""A Redis verb is a value: the command to send and how to read its reply.

Verbs are written once; `run` and `run_all` execute them on a plain client, `postroom.mailbox.group` on an asyncio one.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

import redis
from redis.exceptions import NoScriptError, ResponseError

from postroom.mailbox import keys, scripts
from postroom.mailbox.errors import InvalidInput, from_reply
from postroom.mailbox.wire import Call, Command, Packed, calls, pack

Fields = dict[str, bytes]
T = TypeVar("T")
_NO_FUNCTION = "Function not found"
SENT_AT_ONCE = 64
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Op(Generic[T_co]):
    """One call to Redis, not yet made."""

    command: Command
    parse: Callable[[Any], T_co]


def transition(
    name: str, places: Sequence[str], now: int | None, args: Sequence[str | bytes | int], parse: Callable[[Any], T]
) -> Op[T]:
    """A transition on these keys; without `now` the server's clock counts."""
    return Op(("FCALL", scripts.function(name), len(places), *places, "" if now is None else now, *args), parse)


def on_thread(
    name: str, thread_id: str, now: int | None, args: Sequence[str | bytes | int], parse: Callable[[Any], T]
) -> Op[T]:
    """A transition on one thread."""
    return transition(name, (keys.thread(keys.check_id(thread_id, "thread id")),), now, args, parse)


def counted(items: Sequence[Any]) -> list[Any]:
    """A list argument, as the scripts read it: its length, then its items."""
    return [len(items), *items]


def counted_lists(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """Several list arguments: how many, then each."""
    flat: list[Any] = [len(lists)]
    for items in lists:
        flat += counted(items)
    return flat


def pairs(fields: dict[str, Any]) -> list[Any]:
    """A map as field, value, field, value."""
    return [part for pair in fields.items() for part in pair]


def hash_fields(flat: Sequence[bytes]) -> Fields:
    """A hash from the flat list Redis returns."""
    return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}


def result(op: Op[T], reply: Any) -> T:
    """The op's value, or the error its reply stands for; a foreign error is passed on as it is."""
    if isinstance(reply, ResponseError):
        raise from_reply(str(reply)) or reply
    if isinstance(reply, BaseException):
        raise reply
    return op.parse(reply)


def run_all(client: redis.Redis, ops: Iterable[Op[Any]]) -> list[Any]:
    """Sends the ops, as they are made, in one round trip; each result is a value or the exception of that op alone."""
    made: list[Op[Any]] = []
    unsent: dict[int, InvalidInput] = {}

    def packed() -> Iterator[Packed]:
        for op in ops:
            made.append(op)
            try:
                yield pack(op.command)
            except InvalidInput as error:
                unsent[len(made) - 1] = error

    sent = iter(_exchange(client, packed()))
    replies = [unsent.get(i) or next(sent) for i in range(len(made))]
    if missed := [i for i, reply in enumerate(replies) if is_unknown(reply)]:
        # Nothing of a transition that was not found has happened, so it may simply be sent again.
        refusal = load_scripts(client)
        for i, reply in zip(missed, exchange(client, [made[i].command for i in missed]), strict=True):
            replies[i] = refusal if refusal and is_unknown(reply) else reply
    return [_outcome(op, reply) for op, reply in zip(made, replies, strict=True)]


def run(client: redis.Redis, op: Op[T]) -> T:
    """Sends one op and returns its value or raises its error."""
    (value,) = run_all(client, [op])
    if isinstance(value, BaseException):
        raise value
    found: T = value
    return found


def is_unknown(reply: Any) -> bool:
    """Whether the server says that it does not know the function or script that was called."""
    return isinstance(reply, NoScriptError) or (isinstance(reply, ResponseError) and str(reply) == _NO_FUNCTION)


def loading() -> list[Command]:
    """The commands that teach a server every transition."""
    library = scripts.library()
    return [
        ("FUNCTION", "LOAD", "REPLACE", library.source),
        ("ZADD", keys.LIBRARIES, int(time.time() * 1000), library.name),
        *(("SCRIPT", "LOAD", each.source) for each in scripts.of_packages()),
    ]


def load_scripts(client: redis.Redis) -> ResponseError | None:
    """Teaches the server every transition, in one round trip; why it would not learn, if so."""
    return first_refusal(exchange(client, loading()))


def first_refusal(replies: Iterable[Any]) -> ResponseError | None:
    """The first error that the server itself has answered with."""
    return next((reply for reply in replies if isinstance(reply, ResponseError)), None)


def exchange(client: redis.Redis, commands: Iterable[Command]) -> list[Any]:
    """Sends commands and returns their bare replies, errors among them."""
    return _exchange(client, map(pack, commands))


def _exchange(client: redis.Redis, packed: Iterable[Packed]) -> list[Any]:
    # Below redis-py's pipeline, because that reshapes replies by command name; verbs read what the server says.
    connection: Any = client.connection_pool.get_connection()
    try:
        replies: list[Any] = []
        behind: list[Call] = []
        left = iter(packed)
        # The server works on what was sent while the replies before are read and the rest is being made.
        while some := [*calls(islice(left, SENT_AT_ONCE))]:
            connection.send_packed_command([b"".join([call.sent for call in some])])
            replies += _replies(connection, behind)
            behind = some
        return replies + _replies(connection, behind)
    except BaseException:
        # Replies may still be under way; the next user of this connection must not read them.
        connection.disconnect()
        raise
    finally:
        client.connection_pool.release(connection)


def _replies(connection: Any, sent: Iterable[Call]) -> list[Any]:
    return [reply for call in sent for reply in call.replies(_reply(connection))]


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def _outcome(op: Op[Any], reply: Any) -> Any:
    try:
        return result(op, reply)
    except Exception as error:
        return error

"""The one place clients come from: no silent retries, no read timeout, and a server we can trust with facts.

A command that redis-py retries by itself may happen twice, and a read timeout breaks every blocking read, so both are
off and a URL cannot turn them on again. `connect` and `connect_async` ask the server once about itself and refuse it,
in one line, when it is too old, read-only or may drop keys. Errors of redis-py become ours here; a message never
carries user, password or query of a URL.
"""

import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qs, urlsplit

import redis
import redis.asyncio
from redis import exceptions as foreign
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from postroom.mailbox.errors import (
    InvalidInput,
    ServerEvicts,
    ServerFull,
    ServerProblem,
    ServerReadOnly,
    ServerTooOld,
    ServerUnreachable,
)

OLDEST = (7, 0)
# What it looks like when the server is gone or on its way back: whether the command was executed is unknown.
LOST_CONNECTION = (foreign.ConnectionError, foreign.TimeoutError, OSError)
ANSWER_S = 5.0

_PLAIN: dict[str, Any] = {"socket_connect_timeout": ANSWER_S, "protocol": 2, "decode_responses": False}
# Without a read timeout only these notice a peer that vanished: probes while nothing is said (the system's default is
# two hours), and a limit on how long what was said may stay unacknowledged (by default a quarter of an hour).
_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
_KEEPALIVE: dict[str, Any] = {
    "socket_keepalive": True,
    "socket_keepalive_options": {getattr(socket, name): n for name, n in _PROBES.items() if hasattr(socket, name)},
}
_OPTIONS = {"redis": _PLAIN | _KEEPALIVE, "rediss": _PLAIN | _KEEPALIVE, "unix": _PLAIN}
_OURS = {"socket_timeout", "retry", "retry_on_timeout", "retry_on_error", "protocol", "decode_responses"}

Pool = TypeVar("Pool", redis.ConnectionPool, redis.asyncio.ConnectionPool)


def connect(url: str, *, answer_s: float = ANSWER_S) -> redis.Redis:
    """A client of a server that passed the checks and answered them in time."""
    _refuse(read_info(url, answer_s), url)
    return dial(url)


async def connect_async(url: str, *, answer_s: float = ANSWER_S) -> redis.asyncio.Redis:
    """The same for asyncio."""
    _refuse(await _read_info_async(url, answer_s), url)
    return _dial_async(url)


def dial(url: str, *, timeout: float | None = None) -> redis.Redis:
    """A client without the checks; a timeout is only for commands that never block."""
    return redis.Redis.from_pool(_pool(redis.ConnectionPool, url, timeout, Retry(NoBackoff(), 0)))


def _dial_async(url: str, *, timeout: float | None = None) -> redis.asyncio.Redis:
    return redis.asyncio.Redis.from_pool(_pool(redis.asyncio.ConnectionPool, url, timeout, AsyncRetry(NoBackoff(), 0)))


# The question gets a connection of its own with a timeout, for the client has none and a stalled server would hang it.
def read_info(url: str, answer_s: float = ANSWER_S) -> dict[str, Any]:
    """What the server says of itself, whatever that is."""
    with dial(url, timeout=answer_s) as client, translated(address(url)):
        info: dict[str, Any] = client.info()
        return info


async def _read_info_async(url: str, answer_s: float) -> dict[str, Any]:
    async with _dial_async(url, timeout=answer_s) as client:
        with translated(address(url)):
            return await client.info()


def _pool(kind: type[Pool], url: str, timeout: float | None, retry: object) -> Pool:
    options = _OPTIONS[_checked(url).scheme]
    try:
        pool = kind.from_url(url, **options, socket_timeout=timeout, retry=retry)
        # redis-py would notice an option it does not know only at the first command.
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError, foreign.RedisError):
        raise _unusable("one of its options is unknown or malformed") from None
    return pool


def address(url: str) -> str:
    """The URL as a message may show it: without user, password and query."""
    parts = _checked(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


# A reserved character left bare in a password shifts the URL's parts, so what does not parse is never shown.
def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        options = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
        _ = parts.port
    except ValueError:
        raise _unusable("it does not parse") from None
    if parts.scheme not in _OPTIONS:
        raise _unusable("its scheme is unknown")
    if parts.fragment or (parts.scheme != "unix" and not re.fullmatch(r"/?|/\d+", parts.path)):
        raise _unusable("after the port only a database number may follow")
    if taken := _OURS & options.keys():
        raise _unusable(f"Postroom decides {' and '.join(sorted(taken))} itself")
    return parts


def _unusable(reason: str) -> InvalidInput:
    return InvalidInput(
        f"the Redis URL is not usable: {reason}; write redis://host:6379/0, rediss://host:6379/0 or unix:///path, "
        "with reserved characters of a password percent-encoded"
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


# Field of INFO, what it must be, the error otherwise, and its words. Valkey says redis_version 7.2.4 on purpose.
_REQUIRED: tuple[tuple[str, Callable[[str], bool], type[ServerProblem], str], ...] = (
    (
        "redis_version",
        lambda version: _version(version) >= OLDEST,
        ServerTooOld,
        "the server at {address} has version {value}; use Redis 7.0 or later, or Valkey",
    ),
    (
        "role",
        lambda role: role == "master",
        ServerReadOnly,
        "the server at {address} has the role {value} and takes no writes; give the URL of its primary",
    ),
    (
        "maxmemory_policy",
        lambda policy: policy == "noeviction",
        ServerEvicts,
        "the server at {address} may drop keys (maxmemory-policy {value}); set maxmemory-policy noeviction on it",
    ),
)


def problems(info: Mapping[str, object], where: str) -> dict[str, ServerProblem | None]:
    """What is wrong with each field of INFO that matters; what a server leaves unsaid counts against it."""
    said = {field: str(info.get(field, "unknown")) for field, *_ in _REQUIRED}
    return {
        field: None if fits(said[field]) else kind(words.format(address=where, value=said[field]))
        for field, fits, kind, words in _REQUIRED
    }


def problem(info: Mapping[str, object], where: str) -> ServerProblem | None:
    """The first reason not to use a server that says this of itself."""
    return next(filter(None, problems(info, where).values()), None)


def _refuse(info: Mapping[str, object], url: str) -> None:
    if (found := problem(info, address(url))) is not None:
        raise found


# First match wins, so a class stands before its base.
_WORDS: tuple[tuple[type[Exception], type[ServerProblem], str], ...] = (
    (foreign.AuthenticationError, ServerUnreachable, "refused the login; correct user and password in the URL"),
    (
        foreign.NoPermissionError,
        ServerUnreachable,
        "denied this user a command; grant it all commands on postroom:* and rq:*",
    ),
    (foreign.OutOfMemoryError, ServerFull, "is full and takes no writes; raise its maxmemory or shorten the retention"),
    (foreign.ReadOnlyError, ServerReadOnly, "takes no writes; give the URL of its primary"),
    (foreign.BusyLoadingError, ServerUnreachable, "is still loading its data; try again in a moment"),
    (foreign.TimeoutError, ServerUnreachable, "did not answer in time; check the address and the network"),
    (foreign.ConnectionError, ServerUnreachable, "cannot be reached ({detail}); start it or correct the address"),
    (foreign.RedisError, ServerUnreachable, "answered with an error ({detail}); check that it is Redis or Valkey"),
    (UnicodeError, ServerUnreachable, "has no valid host name; correct the address"),
    (OSError, ServerUnreachable, "cannot be reached ({detail}); check the network"),
)


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turns what redis-py raises inside into one of our errors about the server at this address."""
    try:
        yield
    except (foreign.RedisError, UnicodeError) as error:
        raise explained(error, where) from error


def explained(error: Exception, where: str) -> ServerProblem:
    """Our error for one of redis-py's, or of the network's, about the server at this address."""
    # The asyncio client hides what failed while it connected, a wrong password too, behind a ConnectionError.
    reason = error.__cause__ if isinstance(error.__cause__, foreign.RedisError) else error
    kind, words = next((kind, words) for foreign_kind, kind, words in _WORDS if isinstance(reason, foreign_kind))
    detail = " ".join(str(reason).split()).rstrip(".")
    return kind(f"the server at {where} {words.format(detail=detail)}")

"""All settings in one frozen value, built once from the environment and passed down; nothing else reads it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from postroom.mailbox.codec import READ_BYTES
from postroom.mailbox.errors import InvalidInput

SECOND = 1_000
DAY = 24 * 60 * 60 * SECOND


# Longer than any machine lives, and still a time that Redis can count to.
MOST = 10**12


def _positive(text: str) -> int:
    number = int(text)
    if not 0 < number <= MOST:
        raise ValueError(f"not a whole number from 1 to {MOST}")
    return number


def _size(text: str) -> int:
    number = _positive(text)
    if number > READ_BYTES:
        raise ValueError(f"more than {READ_BYTES}, which no reader accepts")
    return number


def _switch(text: str) -> bool:
    found = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}.get(text.lower())
    if found is None:
        raise ValueError("neither on nor off")
    return found


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _setting(default: Any, parse: Callable[[str], Any], about: str, *, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"parse": parse, "about": about})


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator may change; times are milliseconds, sizes bytes."""

    redis_url: str | None = _setting(None, str, "server to use; unset means the embedded one")
    data_dir: Path = _setting(Path(".postroom"), _path, "where the embedded server keeps its data")
    app: str | None = _setting(None, str, "module:app that workers serve")
    lease_ms: int = _setting(10 * SECOND, _positive, "how long a worker holds a thread without renewing")
    heartbeat_ms: int = _setting(3 * SECOND, _positive, "how often a worker renews its leases and says it is alive")
    sweep_ms: int = _setting(1 * SECOND, _positive, "how often the watch list is worked off")
    drain_ms: int = _setting(30 * SECOND, _positive, "how long a stopping worker waits for the steps under way")
    max_attempts: int = _setting(5, _positive, "crashes after which a run is dead-lettered")
    run_retention_ms: int = _setting(7 * DAY, _positive, "how long a finished run, its journal and its index stay")
    thread_retention_ms: int = _setting(30 * DAY, _positive, "how long an idle thread and its log stay")
    dedupe_ms: int = _setting(DAY, _positive, "how long an idempotency key outlives its run")
    max_body_bytes: int = _setting(8 << 20, _size, "largest encoded message, request, state value or event")
    max_lane: int = _setting(1_000, _positive, "most runs queued on one thread")
    max_mail: int = _setting(1_000, _positive, "most unread mail in one mailbox")
    max_events: int = _setting(10_000, _positive, "events kept in a run's journal before the oldest are trimmed")
    models: Path | None = _setting(None, _path, "TOML file with sizes, prices, rate limits and pools of models")
    model_connect_ms: int = _setting(10 * SECOND, _positive, "how long to wait for a connection to a provider")
    model_first_token_ms: int = _setting(120 * SECOND, _positive, "how long a model may think before its first token")
    model_idle_ms: int = _setting(60 * SECOND, _positive, "how long an answer may be silent")
    model_total_ms: int = _setting(600 * SECOND, _positive, "how long an answer may take")
    model_http2: bool = _setting(False, _switch, "speak HTTP/2 to providers that can")

    webhook_secret: str | None = _setting(None, str, "key that deliveries to webhooks are signed with", secret=True)
    webhook_tries: int = _setting(12, _positive, "tries after which a delivery to a webhook is given up")
    webhook_retry_ms: int = _setting(5 * SECOND, _positive, "wait after the first failed try; doubled by each one more")
    webhook_timeout_ms: int = _setting(10 * SECOND, _positive, "how long a webhook may take to answer")

    def __post_init__(self) -> None:
        # An unset variable on a command line, most likely: nobody who gives a URL wants a server of their own.
        if self.redis_url == "":
            raise InvalidInput("the Redis URL given is empty; give one, or none at all for the embedded server")
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int):
                _parse(item.name, item.metadata["parse"], str(value))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> "Settings":
        """Settings from `POSTROOM_*`; an unreadable value is refused by name, an empty one counts as unset."""
        source = os.environ if environ is None else environ
        parsers = {item.name: item.metadata["parse"] for item in fields(cls)}
        values: dict[str, Any] = {}
        for name, parse in parsers.items():
            text = source.get(variable(name), "")
            if text:
                values[name] = _parse(name, parse, text)
        return cls(**values | {name: value for name, value in overrides.items() if value is not None})


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"POSTROOM_{name.upper()}"


def _parse(name: str, parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidInput(f"{variable(name)}={text!r} is not usable: {error}") from None

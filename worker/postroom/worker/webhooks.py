"""Webhooks: whoever asked is told that a run has ended or waits; at least once, signed, and with patience.

1. take deliveries that are due, as many as may be under way
2. POST each to the run's webhook: no redirects, no cookies, no credentials, a time limit
3. settle: done with a 2xx, tried again ever later otherwise, in the end given up where an operator sees it

The signature is that of the Standard Webhooks specification, so any of its libraries verifies it.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import random
import time
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from postroom.mailbox import deliveries, records
from postroom.mailbox.contracts import RunRecord
from postroom.mailbox.deliveries import Delivery
from postroom.mailbox.group import Group
from postroom.mailbox.journal import Entry
from postroom.mailbox.settings import Settings
from postroom.worker.patience import persist

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

MOST_UNDER_WAY = 16
MOST_BYTES = 256 * 1024
LONGEST_WAIT_MS = 60 * 60 * 1000
STATUS = {"run_finish": "done", "run_waiting": "waiting"}
AGENT = f"postroom/{version('postroom')}"


def payload(delivery: Delivery, record: RunRecord, entry: Entry) -> dict[str, Any]:
    """What the receiver is told: the event, and whose it is."""
    event = dict(entry.event)
    kind = event.pop("type")
    outcome = event.pop("termination", None) or event.pop("reason", None)
    whose = {"run": record.run_id, "thread": record.thread_id, "agent": record.agent, "tenant": record.tenant}
    told = {"type": kind, "delivery": delivery.id, "at": entry.at, "status": STATUS[kind], "outcome": outcome}
    told |= {**whose, **event, "metadata": record.request.get("metadata")}
    return {name: value for name, value in told.items() if value is not None}


def body(told: dict[str, Any], limit: int = MOST_BYTES) -> bytes:
    """The payload as JSON; if that is too large, without what the run itself decided the size of."""
    words = _json(told)
    if len(words) <= limit:
        return words
    bulky = {"result", "tickets", "metadata", "message"}
    return _json({name: value for name, value in told.items() if name not in bulky} | {"truncated": True})


def headers(delivery_id: str, at: int, content: bytes, secret: str | None) -> dict[str, str]:
    """Who is calling, about what, and the proof; without a secret there is none to give."""
    named = {"content-type": "application/json", "user-agent": AGENT, "webhook-id": delivery_id}
    if not secret:
        return named | {"webhook-timestamp": str(at)}
    signed = f"{delivery_id}.{at}.".encode() + content
    proof = base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()
    return named | {"webhook-timestamp": str(at), "webhook-signature": f"v1,{proof}"}


def wait_ms(tries: int, settings: Settings) -> int | None:
    """How long to wait after so many tries, or None when that was the last one."""
    if tries >= settings.webhook_tries:
        return None
    return int(min(settings.webhook_retry_ms * 2 ** (tries - 1), LONGEST_WAIT_MS))


class Courier:
    """Makes the deliveries that are owed, for as long as it runs."""

    def __init__(self, group: Group, settings: Settings) -> None:
        self.group, self.settings = group, settings
        self.under_way: set[asyncio.Task[None]] = set()
        self.client: httpx.AsyncClient | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Looks once a second until told to stop, and then waits for what is under way."""
        while not stopping.is_set():
            try:
                await self.look()
            except (RedisError, OSError) as error:
                log.warning("webhooks: the server does not answer (%s), trying again", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), self.settings.sweep_ms / 1000 * random.uniform(0.8, 1.2))  # noqa: S311
        if self.under_way:
            await asyncio.wait(self.under_way)
        if self.client:
            await self.client.aclose()

    async def look(self) -> None:
        """Starts what is due."""
        free = MOST_UNDER_WAY - len(self.under_way)
        # Longer than a try may take, so that nobody takes up a delivery which is under way.
        hidden = 2 * self.settings.webhook_timeout_ms + 1_000
        for delivery in await self.group.run(deliveries.take(free, hidden)) if free else []:
            task = asyncio.create_task(self._deliver(delivery))
            self.under_way.add(task)
            task.add_done_callback(self._over)

    def _over(self, task: "asyncio.Task[None]") -> None:
        self.under_way.discard(task)
        if not task.cancelled() and task.exception():
            # It is due again soon; whatever this was, it must not end the others.
            log.error("webhooks: a delivery failed: %r", task.exception())

    async def _deliver(self, delivery: Delivery) -> None:
        record, entry = await self.group.run_all(
            [records.get_run(delivery.thread_id, delivery.run_id), deliveries.event(delivery)]
        )
        if isinstance(record, RunRecord) and record.webhook and isinstance(entry, Entry):
            wrong = await self._post(record.webhook, delivery.id, body(payload(delivery, record, entry)))
        else:
            log.info("webhooks: %s is dropped, its run or its event is gone", delivery.id)
            wrong = ""
        wait = wait_ms(delivery.tries, self.settings) if wrong else None
        jittered = None if wait is None else int(wait * random.uniform(0.75, 1.25))  # noqa: S311 - jitter
        settled = deliveries.settle(delivery.id, wrong, jittered, self.settings.run_retention_ms)
        outcome = await persist(self.group, settled, f"delivery {delivery.id}", lambda: True)
        if wrong:
            log.warning("webhooks: %s, try %d: %s; %s", delivery.id, delivery.tries, wrong, outcome)

    async def _post(self, url: str, delivery_id: str, content: bytes) -> str:
        """What went wrong, in words; nothing if it was delivered."""
        # A worker that never delivers need not wait for this import, and one that does must go on beating meanwhile.
        httpx = await asyncio.to_thread(_httpx)
        seconds = self.settings.webhook_timeout_ms / 1000
        if self.client is None:
            jar = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))
            self.client = httpx.AsyncClient(follow_redirects=False, trust_env=False, cookies=jar, timeout=seconds)
        sent = headers(delivery_id, int(time.time()), content, self.settings.webhook_secret)
        call = self.client.stream("POST", url, content=content, headers=sent)
        try:
            # The answer's body is never read, so it cannot be too large; a receiver that dribbles meets the time limit.
            async with asyncio.timeout(seconds), call as answer:
                return "" if answer.is_success else f"the receiver answered {answer.status_code}"
        except TimeoutError:
            return f"no answer within {seconds:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return f"{type(error).__name__}: {error}"[:200]


def _httpx() -> Any:
    import httpx

    # It would log every URL, and a URL may carry a token.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return httpx


def _key(secret: str) -> bytes:
    """The key's bytes: a secret written `whsec_…` holds them in base64, any other is taken as it is."""
    if secret.startswith("whsec_"):
        with suppress(binascii.Error):
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    return secret.encode()


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_words).encode("utf-8", "replace")


def _words(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

"""The one place HTTP is met: a pooled client per process, four timeouts, and httpx's errors as ours."""

import asyncio
import importlib.util
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import httpx

from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.settings import Settings
from postroom.worker.model.errors import (
    ModelError,
    ModelTimeout,
    ModelUnreachable,
    ProviderFailed,
    RequestRejected,
    StreamInterrupted,
)

# As many connections as there are answers under way; a hundred stay open for the next ones.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0)
# It tells of every request at the level info, with its whole address; queries of addresses may be secret.
logging.getLogger("httpx").setLevel(logging.WARNING)
# A connection whose answer was read to its end can be used again; waiting longer for that end is not worth it.
DRAIN_S = 0.2
MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to connect, to the first token, between two signs of life, and for the whole answer."""

    connect: float = 10.0
    first_token: float = 120.0
    idle: float = 60.0
    total: float = 600.0

    @classmethod
    def of(cls, settings: Settings) -> "Timeouts":
        """As the operator wants them."""
        return cls(
            settings.model_connect_ms / 1000,
            settings.model_first_token_ms / 1000,
            settings.model_idle_ms / 1000,
            settings.model_total_ms / 1000,
        )

    def patient(self) -> "Timeouts":
        """For a model that thinks before it speaks."""
        return replace(self, first_token=self.first_token * 2, idle=self.idle * 2)


@dataclass(frozen=True, slots=True)
class Post:
    """One request; headers carry the key and are never shown."""

    url: str
    body: bytes = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    method: str = "POST"


class Answer:
    """A response being read; `read` gives its bytes as they arrive and None at the end."""

    def __init__(self, response: httpx.Response, model: str, times: Timeouts, began: float) -> None:
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self._chunks = response.aiter_bytes()
        self._model = model
        self._times = times
        self._began = began

    @property
    def streams(self) -> bool:
        """Whether it comes as events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    async def read(self, spoken: bool) -> bytes | None:
        """The next bytes; before the model has spoken the clock of the first token runs, then that of idleness."""
        now = asyncio.get_running_loop().time()
        nearest = now + self._times.idle if spoken else self._began + self._times.first_token
        try:
            async with asyncio.timeout_at(min(nearest, self._began + self._times.total)):
                return await anext(self._chunks, None)
        except TimeoutError:
            raise self._late(nearest, spoken) from None
        except httpx.HTTPError as error:
            raise _named(self._model, error, begun=True) from None

    async def whole(self, most: int = MOST_BYTES) -> bytes:
        """The rest of it, at most as much as is reasonable."""
        pieces: list[bytes] = []
        size = 0
        while (piece := await self.read(spoken=False)) is not None:
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise ProviderFailed(f"{self._model}: the answer has more than {most} bytes")
        return b"".join(pieces)

    async def drain(self) -> None:
        """Reads what follows the end marker, which is nothing, so that the connection can be used again."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while await anext(self._chunks, None) is not None:
                    pass
        except (TimeoutError, httpx.HTTPError):
            pass

    def _late(self, nearest: float, spoken: bool) -> ModelTimeout:
        times = self._times
        if nearest > self._began + times.total:
            return ModelTimeout(f"{self._model}: no end of the answer in {times.total:g} s")
        waited = f"silent for {times.idle:g} s" if spoken else f"no first token in {times.first_token:g} s"
        return ModelTimeout(f"{self._model}: {waited}")


class Http:
    """Makes requests, all on one pooled client for each event loop; a worker has one loop."""

    def __init__(self, http2: bool = False) -> None:
        if http2 and importlib.util.find_spec("h2") is None:
            raise InvalidInput("POSTROOM_MODEL_HTTP2 needs a package that is missing: pip install 'postroom[http2]'")
        self._http2 = http2
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    def client(self) -> httpx.AsyncClient:
        """The client of this event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = httpx.AsyncClient(http2=self._http2, limits=_LIMITS, follow_redirects=False)
        return self._clients[loop]

    async def close(self) -> None:
        """Closes the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client:
            await client.aclose()

    @asynccontextmanager
    async def open(self, post: Post, model: str, times: Timeouts) -> AsyncIterator[Answer]:
        """Sends the request; leaving the block ends the answer at once, wherever it is."""
        client = self.client()
        began = asyncio.get_running_loop().time()
        waits = httpx.Timeout(None, connect=times.connect)
        try:
            request = client.build_request(
                post.method, post.url, content=post.body, headers=post.headers, timeout=waits
            )
            async with asyncio.timeout_at(began + min(times.first_token, times.total)):
                response = await client.send(request, stream=True)
        except TimeoutError:
            raise ModelTimeout(f"{model}: no answer in {times.first_token:g} s") from None
        except (httpx.InvalidURL, httpx.HTTPError) as error:
            raise _named(model, error, begun=False) from None
        try:
            yield Answer(response, model, times, began)
        finally:
            await response.aclose()


def _named(model: str, error: Exception, begun: bool) -> ModelError:
    """What httpx raised as one of our errors, in one line without the request."""
    reason = " ".join(str(error).split()) or type(error).__name__
    match error:
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            return ModelTimeout(f"{model}: no connection in time; check the address and the network")
        case httpx.ConnectError():
            return ModelUnreachable(f"{model}: the provider cannot be reached ({reason}); check the address")
        case httpx.ProxyError():
            return ModelUnreachable(f"{model}: the proxy refused ({reason}); check its address")
        case httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return RequestRejected(f"{model}: its address is not usable ({reason})")
        case httpx.DecodingError():
            return ProviderFailed(f"{model}: the answer cannot be decoded ({reason})")
        case _ if begun:
            return StreamInterrupted(f"{model}: the answer broke off ({reason})")
        case _:
            return ProviderFailed(f"{model}: the connection was lost before an answer ({reason})")

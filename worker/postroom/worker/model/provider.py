"""A model at a provider: asks over HTTP in its provider's language and gives the answer in parts."""

import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from postroom.worker.model import sse
from postroom.worker.model.base import CallPart, Limits, Part, ReasoningPart, Request, TextPart, UsagePart
from postroom.worker.model.errors import ModelError, ProviderFailed, RequestRejected, StreamInterrupted, Unauthorized
from postroom.worker.model.http import Answer, Http, Post, Timeouts
from postroom.worker.model.pricing import priced
from postroom.worker.model.refusal import parsed, refusal
from postroom.worker.model.wire import Card, Heard, Names, Wire

# What a decoder raises when a provider sends something of another shape than it documents.
_ODD = (KeyError, TypeError, AttributeError, IndexError, ValueError)
_SPOKEN = (TextPart, ReasoningPart, CallPart)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a provider is and which variable holds its key; the key itself is read when it is used and kept nowhere."""

    base_url: str
    key_variable: str
    key_needed: bool = True
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    def key(self, model: str) -> str | None:
        """The key, or one clear line."""
        found = self.environ.get(self.key_variable, "").strip()
        if not found and self.key_needed:
            raise Unauthorized(f"{model}: no key; set {self.key_variable} in the environment of the worker")
        if not found.isascii() or not found.isprintable():
            raise Unauthorized(f"{model}: the key in {self.key_variable} holds characters no key has; set it again")
        return found or None

    def without_key(self, error: ModelError) -> ModelError:
        """The error as it may be shown, whatever a provider repeats in it."""
        key = self.environ.get(self.key_variable, "").strip()
        return type(error)(error.message.replace(key, "…"), error.retry_after) if key else error

    def url(self, path: str) -> str:
        """The full address of an endpoint; a query of the base stays a query."""
        base, mark, query = self.base_url.partition("?")
        return f"{base.rstrip('/')}{path}{mark}{query}"


class ProviderModel:
    """One model at one provider."""

    def __init__(
        self, card: Card, wire: Wire, address: Address, http: Http, times: Timeouts, streaming: bool = True
    ) -> None:
        self._card, self._wire, self._address, self._http = card, wire, address, http
        self._times, self._streaming = times, streaming

    def __repr__(self) -> str:
        return f"ProviderModel({self.name!r})"

    @property
    def name(self) -> str:
        """How people call it."""
        return self._card.name

    @property
    def limits(self) -> Limits:
        """What is known of its size and price."""
        return self._card.limits

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        """The answer in parts, or a ModelError."""
        if request.upstream is not None and not request.upstream.strip():
            raise RequestRejected(f"{self.name}: the name that replaces the model's own is blank")
        heard = self._wire.heard(self._card, Names(request.tools), _new_id)
        patient = self._card.reasoning or request.options.effort is not None
        times = self._times.patient() if patient else self._times
        failure: ModelError | None = None
        try:
            async with (
                self._http.open(self._post(request), self.name, times) as answer,
                aclosing(self._parts(answer, heard)) as parts,
            ):
                async for part in parts:
                    yield part
        except ModelError as error:
            failure = self._address.without_key(error)
        # Tokens are paid for even if the answer broke off.
        if heard.usage is not None:
            yield UsagePart(priced(heard.usage, self.limits))
        if failure is not None:
            raise failure
        if heard.stop is None:
            raise StreamInterrupted(f"{self.name}: the answer ended before the model said why it stopped")
        yield heard.stop

    async def _parts(self, answer: Answer, heard: Heard) -> AsyncGenerator[Part, None]:
        if answer.status >= 300:
            raise await self._refused(answer)
        if not answer.streams:
            for part in self._piece(await answer.whole(), heard):
                yield part
            return
        events, spoken = sse.Decoder(), False
        while not heard.ended:
            chunk = await answer.read(spoken)
            for part in self._hear(events, chunk, heard):
                spoken = spoken or isinstance(part, _SPOKEN)
                yield part
            if chunk is None:
                return
        await answer.drain()

    def _post(self, request: Request) -> Post:
        key = self._address.key(self.name)
        url = self._address.url(self._wire.path)
        body = self._wire.body(request, self._card, self._streaming)
        headers = self._wire.headers(key, url) | {
            "content-type": "application/json",
            "accept": "text/event-stream" if self._streaming else "application/json",
        }
        return Post(url, json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"), headers)

    def _hear(self, events: sse.Decoder, chunk: bytes | None, heard: Heard) -> Iterator[Part]:
        # One by one: what came before an error in the same piece was said all the same.
        try:
            for event in events.finish() if chunk is None else events.feed(chunk):
                yield from heard.hear(event)
        except StreamInterrupted as error:
            raise StreamInterrupted(f"{self.name}: {error}") from None
        except _ODD as error:
            raise StreamInterrupted(f"{self.name}: the answer has a shape we do not know ({error!r})") from error

    def _piece(self, body: bytes, heard: Heard) -> list[Part]:
        found = parsed(body)
        if not isinstance(found, dict):
            raise ProviderFailed(f"{self.name}: the answer is not a JSON object; check the address")
        try:
            return heard.whole(found)
        except _ODD as error:
            raise ProviderFailed(f"{self.name}: the answer has a shape we do not know ({error!r})") from error

    async def _refused(self, answer: Answer) -> Exception:
        body = parsed(await answer.whole())
        variable = self._address.key_variable if self._address.environ.get(self._address.key_variable) else ""
        return refusal(self.name, body, answer.status, answer.headers, time.time(), variable)


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"

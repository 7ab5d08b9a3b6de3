"""A remote agent, asked over HTTP: its card, messages to it, its tasks as they change, the wish that one be ended."""

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeVar

from postroom.mailbox.backends import A2A, Card
from postroom.mailbox.cards import MAX_CARD_BYTES, PROTOCOL, card_address, read_card
from postroom.worker.model import sse
from postroom.worker.model.errors import ModelError, Permanent, ProviderFailed, RequestRejected
from postroom.worker.model.http import MOST_BYTES, Answer, Http, Post, Timeouts
from postroom.worker.model.provider import Address
from postroom.worker.model.refusal import parsed, refusal
from postroom.worker.model.retry import RetryPolicy, Tries
from postroom.worker.remote.binding import CANCEL, GET, LIST, SEND, SUBSCRIBE, Ask, Binding
from postroom.worker.remote.http_json import HttpJson
from postroom.worker.remote.json_rpc import JsonRpc
from postroom.worker.remote.tasks import Plain, Said, Task, fold, read_reply, read_task

log = logging.getLogger(__name__)
T = TypeVar("T")

BINDINGS: Final[dict[str, Binding]] = {"HTTP+JSON": HttpJson(), "JSONRPC": JsonRpc()}
# What is asked for at once is there soon or not at all; a stream may be silent for longer.
QUICK: Final = Timeouts(connect=10.0, first_token=30.0, idle=30.0, total=60.0)
SILENCE_S: Final = 60.0
CARD_LASTS_S: Final = 300.0
_ODD: Final = (KeyError, TypeError, AttributeError, IndexError, ValueError)


class NotOffered(RequestRejected):
    """The agent does not have what it was asked for."""

    code = "remote_not_offered"


class Peer:
    """One remote agent; whoever serves runs of it shares the card and the connections."""

    def __init__(
        self,
        agent: str,
        config: A2A,
        http: Http,
        environ: Mapping[str, str],
        policy: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self.config, self.name = config, f"agent {agent}"
        self._http, self._policy, self._sleep = http, policy or RetryPolicy(), sleep
        # The key is read when it is used and kept nowhere.
        self._address = Address(config.url, config.auth_env or "", bool(config.auth_env), environ)
        self._card, self._fetched = config.card, float("inf") if config.card else 0.0

    # -- verbs -------------------------------------------------------------------------------------------------------

    async def card(self) -> Card:
        """What was discovered, or what its card says now and is believed for a while."""
        if self._card is None or self._fetched + CARD_LASTS_S < time.monotonic():
            self._card = read_card(self.config.url, await self.fetch(), self.config.any_host)
            self._fetched = time.monotonic()
        return self._card

    async def fetch(self) -> bytes:
        """The card as it lies there."""
        async with self._opened(Ask("GET", card_address(self.config.url)), QUICK) as answer:
            body = await answer.whole(MAX_CARD_BYTES)
            if answer.status >= 300:
                raise self._refusal(parsed(body), answer)
            return body

    async def send(self, message: Plain, again: bool) -> Task | Said:
        """What a message is answered with; one that may have been sent before is looked for first."""
        may_be_there = again

        async def once() -> Task | Said:
            nonlocal may_be_there
            if may_be_there and (found := await self.find(message)):
                return found
            may_be_there = True
            wish = {"message": message, "configuration": {"returnImmediately": True}}
            # Those who cannot return at once return when they are done.
            patient = Timeouts(QUICK.connect, self.config.timeout_s, self.config.timeout_s, self.config.timeout_s)
            return await self._read(read_reply, SEND, wish, patient)

        return await self._patiently(once)

    async def find(self, message: Plain) -> Task | None:
        """The task that has had this message, as far as the agent lets us know."""
        try:
            if "taskId" in message:
                known = [await self.get(message["taskId"])]
            else:
                wanted = {"contextId": message["contextId"], "pageSize": 100}
                known = await self._read(lambda found: [*map(read_task, found.get("tasks") or ())], LIST, wanted)
        except Permanent as error:
            log.info("%s: whether it has had message %s is not known", error, message["messageId"])
            return None
        found = next((task for task in known if message["messageId"] in task.heard), None)
        # A listing leaves out what was made.
        return await self.get(found.id) if found and "taskId" not in message else found

    async def get(self, task_id: str) -> Task:
        """A task as it stands."""
        return await self._read(read_task, GET, {"id": task_id})

    async def cancel(self, task_id: str) -> None:
        """Asks that a task be ended; one that is over is none the worse for it."""
        try:
            await self._patiently(lambda: self._read(read_task, CANCEL, {"id": task_id}))
        except Permanent as error:
            log.info("task %s is not cancelled: %s", task_id, error)

    async def follow(self, task: Task) -> AsyncGenerator[Task, None]:
        """The task as it changes, until it is settled: by its stream if there is one, else by looking."""
        streams = (await self._patiently(self.card)).streaming
        while True:
            if streams:
                try:
                    async with aclosing(self._stream(task)) as seen:
                        async for task in seen:
                            yield task
                            if task.settled:
                                return
                except NotOffered:
                    streams = False
                except ModelError as error:
                    log.info("%s; looking at task %s instead", error, task.id)
            task = await self._patiently(lambda wanted=task.id: self.get(wanted))  # type: ignore[misc]
            yield task
            if task.settled:
                return
            await self._sleep(self.config.poll_s)

    async def _stream(self, task: Task) -> AsyncGenerator[Task, None]:
        card = await self.card()
        binding, events = BINDINGS[card.binding], sse.Decoder()
        times = Timeouts(QUICK.connect, SILENCE_S, SILENCE_S, self.config.timeout_s)
        ask = binding.ask(card, SUBSCRIBE, {"id": task.id})
        async with self._opened(ask, times, "text/event-stream") as answer:
            if not answer.streams:
                self._checked(binding, parsed(await answer.whole()), answer)
                raise NotOffered(f"{self.name}: a stream was asked for and something else came")
            ended, size = False, 0
            while not ended:
                chunk = await answer.read(spoken=True)
                ended = chunk is None
                size += len(chunk or b"")
                if size > MOST_BYTES:
                    raise ProviderFailed(f"{self.name}: the stream has more than {MOST_BYTES} bytes")
                for event in self._made_of(events.feed, chunk) if chunk is not None else events.finish():
                    found = self._checked(binding, parsed(event.data), answer)
                    task = self._made_of(lambda data, known=task: fold(known, data), found)  # type: ignore[misc]
                    yield task

    # -- requests ----------------------------------------------------------------------------------------------------

    async def _read(self, read: Callable[[Plain], T], verb: str, params: Plain, times: Timeouts = QUICK) -> T:
        card = await self.card()
        binding = BINDINGS[card.binding]
        async with self._opened(binding.ask(card, verb, params), times) as answer:
            body = parsed(await answer.whole())
            return self._made_of(read, self._checked(binding, body, answer))

    def _checked(self, binding: Binding, body: Any, answer: Answer) -> Plain:
        if refused := binding.refused(answer.status, body):
            error = self._refusal(body, answer, refused.status)
            raise NotOffered(error.message) if refused.lacks else error
        return self._made_of(binding.result, body)

    def _refusal(self, body: Any, answer: Answer, status: int | None = None) -> ModelError:
        variable = self.config.auth_env or ""
        return refusal(self.name, body, status or answer.status, answer.headers, time.time(), variable)

    def _made_of(self, read: Callable[[Any], T], data: Any) -> T:
        try:
            return read(data)
        except _ODD as error:
            raise ProviderFailed(f"{self.name}: the answer has a shape we do not know ({error!r:.120})") from error

    @asynccontextmanager
    async def _opened(self, ask: Ask, times: Timeouts, accept: str = "application/json") -> AsyncIterator[Answer]:
        headers = {"a2a-version": PROTOCOL, "accept": accept}
        if key := self._address.key(self.name):
            bearer = self.config.auth_header.lower() == "authorization"
            headers[self.config.auth_header] = f"Bearer {key}" if bearer else key
        body = b""
        if ask.body is not None:
            headers["content-type"] = "application/json"
            body = json.dumps(ask.body, ensure_ascii=False).encode("utf-8", "replace")
        try:
            async with self._http.open(Post(ask.url, body, headers, ask.method), self.name, times) as answer:
                yield answer
        except ModelError as error:
            raise self._address.without_key(error) from None

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks again after failures that pass."""
        tries = Tries()
        while True:
            try:
                return await ask()
            except ModelError as error:
                again = tries.another(self._policy, error, spoken=False)
                if again is None:
                    raise
                tries = again
                seconds = tries.wait(self._policy, error, random.random())  # noqa: S311 - jitter
                log.warning("%s, asking again in %.1f s", error, seconds, extra={"code": error.code})
            await self._sleep(seconds)

"""The client that other services import. `Dispatcher` blocks, `AsyncDispatcher` awaits; every verb is one plan."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from postroom.dispatcher import agents, errands, following, forking, listings, plans, profiles, receipts
from postroom.dispatcher.driving import drive, drive_here
from postroom.dispatcher.following import Stream
from postroom.dispatcher.plans import Plan
from postroom.mailbox import ops
from postroom.mailbox.connect import connect, connect_async
from postroom.mailbox.group import Group, run_alone
from postroom.mailbox.journal import Entry
from postroom.mailbox.server import EmbeddedServer, start
from postroom.mailbox.settings import Settings

if TYPE_CHECKING:
    import redis
    import redis.asyncio

P = ParamSpec("P")
T = TypeVar("T")


def _sync(plan: Callable[Concatenate[Settings, P], Plan[T]]) -> Callable[Concatenate["Dispatcher", P], T]:
    def verb(self: "Dispatcher", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._drive(plan(self.settings, *args, **kwargs))

    verb.__name__, verb.__doc__ = plan.__name__, plan.__doc__
    return verb


def _async(
    plan: Callable[Concatenate[Settings, P], Plan[T]],
) -> Callable[Concatenate["AsyncDispatcher", P], Coroutine[Any, Any, T]]:
    async def verb(self: "AsyncDispatcher", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._drive(plan(self.settings, *args, **kwargs))

    verb.__name__, verb.__doc__ = plan.__name__, plan.__doc__
    return verb


class Dispatcher:
    """A blocking client. Without a URL it uses `POSTROOM_REDIS_URL`, else the embedded server."""

    def __init__(self, url: str | None = None, settings: Settings | None = None) -> None:
        self.settings = settings or Settings.from_env(redis_url=url)
        self._server, address = _server(self.settings.redis_url if url is None else url, self.settings)
        self.client: redis.Redis = connect(address)

    submit = _sync(plans.submit)
    submit_many = _sync(plans.submit_many)
    cancel = _sync(plans.cancel)
    interrupt = _sync(plans.interrupt)
    decide = _sync(plans.decide)
    decide_many = _sync(plans.decide_many)
    tool_output = _sync(plans.tool_output)
    list_grants = _sync(plans.list_grants)
    revoke = _sync(plans.revoke)
    send = _sync(plans.send)
    steer = _sync(plans.steer)
    get_run = _sync(plans.get_run)
    get_thread = _sync(plans.get_thread)
    messages = _sync(plans.messages)
    unread = _sync(plans.unread)
    calls = _sync(plans.calls)
    holder = _sync(plans.holder)
    list_runs = _sync(listings.list_runs)
    list_threads = _sync(listings.list_threads)
    retry = _sync(plans.retry)
    retry_dead = _sync(plans.retry_dead)
    drop_dead = _sync(plans.drop_dead)
    list_undelivered = _sync(listings.list_undelivered)
    redeliver = _sync(plans.redeliver)
    drop_delivery = _sync(plans.drop_delivery)
    delete_thread = _sync(plans.delete_thread)
    fork = _sync(forking.fork)
    carry_out = _sync(errands.carry_out)
    receipt = _sync(receipts.receipt)
    get_profile = _sync(profiles.get_profile)
    list_profile = _sync(profiles.list_profile)
    put_profile = _sync(profiles.put_profile)
    forget_profile = _sync(profiles.forget_profile)
    descendants = _sync(receipts.descendants)
    tell_owner = _sync(receipts.tell_owner)
    missing_runs = _sync(receipts.missing_runs)
    list_lost = _sync(plans.list_lost)
    replay_lost = _sync(plans.replay_lost)
    clear_lost = _sync(plans.clear_lost)
    list_stranded = _sync(listings.list_stranded)
    stats = _sync(listings.stats)
    wait = _sync(following.wait)
    put_agent = _sync(agents.put_agent)
    put_card = _sync(agents.put_card)
    get_agent = _sync(agents.get_agent)
    list_agents = _sync(agents.list_agents)
    agent_versions = _sync(agents.agent_versions)
    drop_agent = _sync(agents.drop_agent)
    restore_agent = _sync(agents.restore_agent)

    def events(self, run_id: str, after: int = 0, *, live: bool = True) -> Iterator[Entry]:
        """Events behind a number, then those to come, until the run has ended; resume with the last number seen."""
        plan = following.events(self.settings, run_id, after, live=live)
        answer: Any = None
        while (wanted := _next(plan, answer)) is not None:
            answer = None
            if isinstance(wanted, Entry):
                yield wanted
            else:
                answer = ops.run_all(self.client, wanted)

    def _drive(self, plan: Plan[T]) -> T:
        return drive_here(plan, self.client)

    def close(self) -> None:
        """Gives the connections back, and stops the embedded server if this client started it."""
        self.client.close()
        if self._server:
            self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncDispatcher:
    """The same verbs for asyncio, group-committed: calls made together leave in one write."""

    def __init__(self, url: str | None = None, settings: Settings | None = None) -> None:
        self.settings = settings or Settings.from_env(redis_url=url)
        self._server, self._url = _server(self.settings.redis_url if url is None else url, self.settings)
        self._client: redis.asyncio.Redis | None = None
        self._group: Group | None = None
        self._shares = False

    submit = _async(plans.submit)
    submit_many = _async(plans.submit_many)
    cancel = _async(plans.cancel)
    interrupt = _async(plans.interrupt)
    decide = _async(plans.decide)
    decide_many = _async(plans.decide_many)
    tool_output = _async(plans.tool_output)
    list_grants = _async(plans.list_grants)
    revoke = _async(plans.revoke)
    send = _async(plans.send)
    steer = _async(plans.steer)
    get_run = _async(plans.get_run)
    get_thread = _async(plans.get_thread)
    messages = _async(plans.messages)
    unread = _async(plans.unread)
    calls = _async(plans.calls)
    holder = _async(plans.holder)
    list_runs = _async(listings.list_runs)
    list_threads = _async(listings.list_threads)
    retry = _async(plans.retry)
    retry_dead = _async(plans.retry_dead)
    drop_dead = _async(plans.drop_dead)
    list_undelivered = _async(listings.list_undelivered)
    redeliver = _async(plans.redeliver)
    drop_delivery = _async(plans.drop_delivery)
    delete_thread = _async(plans.delete_thread)
    fork = _async(forking.fork)
    carry_out = _async(errands.carry_out)
    receipt = _async(receipts.receipt)
    get_profile = _async(profiles.get_profile)
    list_profile = _async(profiles.list_profile)
    put_profile = _async(profiles.put_profile)
    forget_profile = _async(profiles.forget_profile)
    descendants = _async(receipts.descendants)
    tell_owner = _async(receipts.tell_owner)
    missing_runs = _async(receipts.missing_runs)
    list_lost = _async(plans.list_lost)
    replay_lost = _async(plans.replay_lost)
    clear_lost = _async(plans.clear_lost)
    list_stranded = _async(listings.list_stranded)
    stats = _async(listings.stats)
    wait = _async(following.wait)
    put_agent = _async(agents.put_agent)
    put_card = _async(agents.put_card)
    get_agent = _async(agents.get_agent)
    list_agents = _async(agents.list_agents)
    agent_versions = _async(agents.agent_versions)
    drop_agent = _async(agents.drop_agent)
    restore_agent = _async(agents.restore_agent)

    async def events(self, run_id: str, after: int = 0, *, live: bool = True) -> AsyncIterator[Entry]:
        """Events behind a number, then those to come, until the run has ended; resume with the last number seen."""
        plan = following.events(self.settings, run_id, after, live=live)
        group = await self._connected()
        answer: Any = None
        while (wanted := _next(plan, answer)) is not None:
            answer = None
            if isinstance(wanted, Entry):
                yield wanted
            else:
                answer = await self._values(group, list(wanted))

    async def _drive(self, plan: Plan[T]) -> T:
        group = await self._connected()
        return await drive(plan, lambda wanted: self._values(group, wanted))

    async def _values(self, group: Group, wanted: list[ops.Op[Any]]) -> list[Any]:
        if any("BLOCK" in op.command for op in wanted):
            assert self._client  # noqa: S101 - _connected made it
            return [await run_alone(self._client, op) for op in wanted]
        return await group.run_all(wanted)

    async def _connected(self) -> Group:
        if self._group is None:
            self._client = await connect_async(self._url)
            self._group = Group(self._client)
        return self._group

    async def close(self) -> None:
        """Gives the connections back, and stops the embedded server if this client started it."""
        if self._group and self._client and not self._shares:
            await self._group.close()
            await self._client.aclose()
        if self._server:
            self._server.close()

    async def __aenter__(self) -> Self:
        await self._connected()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


def sharing(group: Group, settings: Settings) -> AsyncDispatcher:
    """A client on a connection that belongs to somebody else, who closes it."""
    client = AsyncDispatcher.__new__(AsyncDispatcher)
    client.settings, client._server, client._url = settings, None, ""
    client._client, client._group, client._shares = group.client, group, True
    return client


def _next(stream: Stream, answer: Any) -> Iterable[ops.Op[Any]] | Entry | None:
    """What a stream wants or shows next; None when it is over."""
    try:
        return stream.send(answer)
    except StopIteration:
        return None


def _server(url: str | None, settings: Settings) -> tuple[EmbeddedServer | None, str]:
    if url is not None:
        return None, url
    server = start(settings)
    return server, server.url

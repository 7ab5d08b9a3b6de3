"""Group commit: many verbs in one round trip, each with its own reply and its own error."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import redis.asyncio

from postroom.mailbox import commit, lane, lock, ops, records
from postroom.mailbox.connect import connect_async
from postroom.mailbox.contracts import RunRequest, message
from postroom.mailbox.errors import InvalidInput, NothingToDo, RunNotFound
from postroom.mailbox.group import Group, send
from postroom.mailbox.settings import Settings
from tests.mailbox.desk import LEASE, Desk

ECHO = ops.Op(("ECHO", "x"), bytes)


def with_group(url: str, body: Callable[[Group, "redis.asyncio.Redis"], Awaitable[None]]) -> None:
    async def main() -> None:
        client = await connect_async(url)
        group = Group(client)
        try:
            await body(group, client)
        finally:
            await group.close()
            await client.aclose()

    asyncio.run(main())


def test_concurrent_verbs_share_round_trips_and_keep_their_own_errors(server_url: str, real: redis.Redis) -> None:
    desks = [Desk(real) for _ in range(100)]
    ops.load_scripts(real)  # teaching the server would cost round trips of its own

    async def body(group: Group, client: "redis.asyncio.Redis") -> None:
        await group.run(ECHO)
        before = group.round_trips
        requests = [
            RunRequest(run_id=desk.new_run(), thread_id=desk.thread, messages=(message("user", "x"),)) for desk in desks
        ]
        submitted = await asyncio.gather(*(group.run(lane.submit(request, Settings())) for request in requests))
        assert group.round_trips - before <= 2
        claims = [lock.claim(desk.thread, done.run_id, "w", LEASE) for desk, done in zip(desks, submitted, strict=True)]
        outcomes = await asyncio.gather(*(group.run(op) for op in claims * 2), return_exceptions=True)
        assert sum(isinstance(outcome, lock.Claim) for outcome in outcomes) == 100
        assert sum(isinstance(outcome, NothingToDo) for outcome in outcomes) == 100

    with_group(server_url, body)


def test_transitions_the_server_forgot_are_taught_again(server_url: str, real: redis.Redis) -> None:
    desk = Desk(real)

    async def body(group: Group, client: "redis.asyncio.Redis") -> None:
        real.function_flush()
        request = RunRequest(run_id=desk.new_run(), thread_id=desk.thread, messages=(message("user", "x"),))
        assert (await group.run(lane.submit(request, Settings()))).outcome == "queued"

    with_group(server_url, body)
    real.function_flush()
    assert desk.submit().outcome == "queued"


def test_a_cancelled_caller_leaves_the_others_in_peace(server_url: str) -> None:
    async def body(group: Group, client: "redis.asyncio.Redis") -> None:
        tasks = [asyncio.create_task(group.run(ops.Op(("ECHO", str(i)), bytes))) for i in range(50)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        replies = await asyncio.gather(*tasks, return_exceptions=True)
        assert [reply for reply in replies if isinstance(reply, bytes)] == [str(i).encode() for i in range(1, 50, 2)]
        assert await group.run(ECHO) == b"x"

    with_group(server_url, body)


def test_a_lost_connection_fails_its_group_and_heals(server_url: str, real: redis.Redis) -> None:
    async def body(group: Group, client: "redis.asyncio.Redis") -> None:
        name = ops.Op(("CLIENT", "ID"), int)
        blocked = asyncio.create_task(group.run(ops.Op(("BLPOP", "postroom-test-never", 30), lambda reply: reply)))
        victim = await _blocked_client(real)
        real.client_kill_filter(_id=str(victim))
        with pytest.raises(redis.exceptions.ConnectionError):
            await blocked
        assert await group.run(name) != victim

    with_group(server_url, body)


def test_a_lost_connection_fails_the_group_sent_behind_it_too(server_url: str, real: redis.Redis) -> None:
    async def body(group: Group, client: "redis.asyncio.Redis") -> None:
        blocked = asyncio.create_task(group.run(ops.Op(("BLPOP", "postroom-test-never", 30), lambda reply: reply)))
        victim, sent = await _blocked_client(real), group.round_trips
        behind = asyncio.create_task(group.run(ops.Op(("ECHO", "behind"), bytes)))
        for _ in range(10):  # turns of the event loop
            await asyncio.sleep(0)
        assert group.round_trips == sent + 1  # it did not wait for the replies before its own
        later = asyncio.create_task(group.run(ops.Op(("ECHO", "later"), bytes)))
        real.client_kill_filter(_id=str(victim))
        outcomes = await asyncio.gather(blocked, behind, later, return_exceptions=True)
        assert [isinstance(outcome, redis.exceptions.ConnectionError) for outcome in outcomes[:2]] == [True, True]
        # Never sent before, so it goes out on the new connection and gets its own reply.
        assert outcomes[2] == b"later"
        assert await group.run(ECHO) == b"x"

    with_group(server_url, body)


async def _blocked_client(real: redis.Redis) -> int:
    async with asyncio.timeout(5):
        while True:
            for client in real.client_list():
                if client["cmd"] == "blpop":
                    return int(client["id"])
            await asyncio.sleep(0.01)


def test_reads_work_on_both_executors(server_url: str, real: redis.Redis) -> None:
    desk = Desk(real)
    run_id = desk.submit().run_id

    async def body(group: Group, client: "redis.asyncio.Redis") -> None:
        assert await group.run(records.get_run(desk.thread, run_id)) == desk.record(run_id)
        assert await group.run(records.thread_of(run_id)) == desk.thread
        assert (await group.run(records.get_thread(desk.thread))).agent == "clerk"
        with pytest.raises(RunNotFound):
            await group.run(records.thread_of("ghost"))

    with_group(server_url, body)


def test_a_transport_that_has_closed_under_us_is_a_lost_connection() -> None:
    class Closed:
        async def send_packed_command(self, _: object) -> None:
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    with pytest.raises(redis.exceptions.ConnectionError, match="the handler is closed"):
        asyncio.run(send(Closed(), b""))


def test_what_cannot_be_packed_fails_its_caller_alone(server_url: str) -> None:
    async def body(group: Group, client: "redis.asyncio.Redis") -> None:
        wrong = ops.Op(("ECHO", "half a pair \ud83d"), bytes)
        outcomes = await group.run_all([ECHO, wrong, ECHO])
        assert outcomes[::2] == [b"x", b"x"]
        assert isinstance(outcomes[1], InvalidInput)

    with_group(server_url, body)


def test_a_loop_that_goes_down_still_lets_runs_be_given_back(server_url: str) -> None:
    given_back = []

    async def holder(group: Group) -> None:
        try:
            while True:
                await group.run(ECHO)
        finally:
            given_back.append(await group.run(ECHO))

    async def main() -> None:
        client = await connect_async(server_url)
        group = Group(client)
        holders = [asyncio.create_task(holder(group)) for _ in range(5)]
        await group.run(ECHO)
        # What asyncio.run does when the main task is over: everything is cancelled at once.
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*holders, return_exceptions=True), 5)
        await group.close()
        await client.aclose()

    asyncio.run(main())
    assert given_back == [b"x"] * 5


def test_forgotten_transitions_are_taught_once_for_all(server_url: str, real: redis.Redis) -> None:
    desks = [Desk(real) for _ in range(40)]
    owners = [desk.started() for desk in desks]

    async def body(group: Group, client: "redis.asyncio.Redis") -> None:
        real.function_flush()
        real.config_resetstat()
        outcomes = await group.run_all([commit.commit(owner, commit.Batch(1)) for owner in owners])
        assert {outcome.outcome for outcome in outcomes} == {"committed"}
        assert real.info("commandstats")["cmdstat_function|load"]["calls"] == 1

    with_group(server_url, body)


def test_a_sender_cancelled_before_its_first_turn_stops_nobody(server_url: str) -> None:
    async def scenario() -> bytes:
        client = await connect_async(server_url)
        group = Group(client)
        reply = group._send(("PING",))
        assert group._sending
        group._sending.cancel()
        await asyncio.sleep(0)
        pong = await asyncio.wait_for(group.run(ops.Op(("PING",), bytes)), 5)
        await asyncio.wait_for(group.close(), 5)
        await client.aclose()
        assert await reply == b"PONG", "what waited leaves with the next group"
        return pong

    assert asyncio.run(scenario()) == b"PONG"

"""Both clients, verb by verb, on a real server; a worker is played by the mailbox's own verbs."""

import asyncio
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from postroom.dispatcher import AsyncDispatcher, Dispatcher, RunRequest, message
from postroom.mailbox import commit, lane, lock, ops
from postroom.mailbox.commit import Batch, Owner
from postroom.mailbox.contracts import Termination
from postroom.mailbox.errors import (
    BodyTooLarge,
    EventsTrimmed,
    InvalidInput,
    NotFound,
    RunNotFound,
    ThreadBusy,
    ThreadNotFound,
    WaitTimeout,
)
from postroom.mailbox.ids import new_id
from postroom.mailbox.keys import events as events_key
from postroom.mailbox.lifecycle import TerminationKind, WaitingReason
from postroom.mailbox.settings import Settings


@pytest.fixture
def client(server_url: str) -> Iterator[Dispatcher]:
    with Dispatcher(server_url) as made:
        yield made


@pytest.fixture
def thread() -> str:
    return f"thread {uuid.uuid4().hex[:12]}"


def claim(client: Dispatcher, thread: str, run_id: str) -> Owner:
    return Owner(thread, run_id, ops.run(client.client, lock.claim(thread, run_id, "w1", 10_000)).fence)


def finish(client: Dispatcher, owner: Owner, number: int = 1, **more: Any) -> None:
    batch = Batch(number, step=number).say(message("assistant", "done").as_dict()).tell({"type": "step_end"})
    ops.run(client.client, commit.finish(owner, batch, Termination(kind=TerminationKind.NATURAL_END), more))


def test_submit_returns_after_redis_has_it(client: Dispatcher, thread: str) -> None:
    done = client.submit("clerk", "hello", thread=thread, metadata={"a": 1}, tenant="acme", priority=5)
    record = client.get_run(done.run_id)
    assert (record.agent, record.tenant, record.priority, record.status) == ("clerk", "acme", 5, "queued")
    assert client.get_thread(thread).agent == "clerk"


def test_a_run_without_a_thread_gets_one(client: Dispatcher) -> None:
    done = client.submit("clerk", [message("user", "a"), message("user", "b")])
    assert client.get_run(done.run_id).thread_id == f"thread-{done.run_id}"


def test_bad_input_is_one_line_and_writes_nothing(client: Dispatcher) -> None:
    quiet = f"q-{uuid.uuid4().hex[:8]}"
    wrongs: list[dict[str, Any]] = [
        {"thread": "a{b"},
        {"thread": ""},
        {"thread": 5},
        {"run_id": ""},
        {"priority": 999},
        {"on_busy": "panic"},
        {"delay_ms": -1},
        {"delay_ms": "5"},
        {"delay_ms": 1.5},
        {"delay_ms": 10**30},
        {"timeout_ms": float("nan")},
        {"start_at": 10**13, "delay_ms": 5},
        {"start_at": 0, "delay_ms": 0},
        {"deadline": 10**13, "timeout_ms": 5},
        {"metadata": {"x": object()}},
        {"input": None},
        {"input": 5},
        {"input": ["words"]},
        {"input": b"words"},
        {"input": {"role": "user"}},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidInput) as caught:
            client.submit("clerk", **{"input": "x", "queue": quiet, **wrong})
        assert "\n" not in str(caught.value)
    assert client.client.llen(f"rq:queue:{quiet}") == 0
    with pytest.raises(InvalidInput):
        client.submit("two words", "x")


def test_submit_many_is_one_round_trip_and_each_has_its_own_outcome(client: Dispatcher, thread: str) -> None:
    client.submit("clerk", "busy", thread=thread)
    wanted = [RunRequest(run_id=uuid.uuid4().hex, thread_id=f"{thread} {i}", agent="clerk") for i in range(50)]
    wanted.append(RunRequest(run_id=uuid.uuid4().hex, thread_id=thread, agent="clerk", on_busy="reject"))
    outcomes = client.submit_many(wanted)
    assert [outcome.run_id for outcome in outcomes[:-1]] == [request.run_id for request in wanted[:-1]]
    assert isinstance(outcomes[-1], ThreadBusy)


def test_one_that_cannot_be_sent_is_refused_alone(server_url: str) -> None:
    settings = Settings(redis_url=server_url, max_body_bytes=2_000)
    words = ["short", "x" * 4_000, "short too"]
    wanted = [RunRequest(run_id=new_id(), thread_id=new_id(), messages=(message("user", each),)) for each in words]

    async def in_a_loop() -> list[Any]:
        async with AsyncDispatcher(server_url, settings=settings) as client:
            return await client.submit_many(iter(wanted))

    with Dispatcher(server_url, settings=settings) as client:
        first = client.submit_many(iter(wanted))
    for outcomes, accepted in ((first, "queued"), (asyncio.run(in_a_loop()), "again")):
        assert isinstance(outcomes[1], BodyTooLarge)
        assert [outcomes[0].outcome, outcomes[2].outcome] == [accepted] * 2


def test_what_is_no_request_is_refused_alone(client: Dispatcher) -> None:
    fine = RunRequest(run_id=new_id(), thread_id=new_id())
    wrongs: list[Any] = [None, "words", {"agent": "clerk"}, fine.as_dict()]
    first, *refused, last = client.submit_many([fine, *wrongs, fine])
    assert (first.outcome, last.outcome) == ("queued", "again")
    assert [type(each) for each in refused] == [InvalidInput] * len(wrongs)
    no_list: Any = 5
    with pytest.raises(InvalidInput, match="several requests"):
        client.submit_many(no_list)


def test_more_than_one_write_is_still_one_list_of_outcomes(client: Dispatcher) -> None:
    wanted = [
        RunRequest(run_id=new_id(), thread_id=new_id(), messages=(message("user", "x"),))
        for _ in range(2 * ops.SENT_AT_ONCE + 1)
    ]
    assert [outcome.run_id for outcome in client.submit_many(iter(wanted))] == [each.run_id for each in wanted]


def test_delay_and_timeout_count_by_the_servers_clock(client: Dispatcher, thread: str) -> None:
    done = client.submit("clerk", "x", thread=thread, delay_ms=60_000, timeout_ms=120_000)
    record = client.get_run(done.run_id)
    assert done.outcome == "delayed"
    assert record.start_at is not None
    assert record.deadline is not None
    assert 59_000 < record.deadline - record.start_at < 61_000


def test_cancel_by_run_and_by_thread(client: Dispatcher, thread: str) -> None:
    first, second = (client.submit("clerk", "x", thread=thread).run_id for _ in range(2))
    assert client.cancel(second).outcome == "cancelled"
    assert client.cancel(thread).run_id == first
    with pytest.raises(NotFound, match="ghost"):
        client.cancel("ghost")


def test_a_ticket_is_decided_once(client: Dispatcher, thread: str) -> None:
    run_id = client.submit("clerk", "x", thread=thread).run_id
    owner = claim(client, thread, run_id)
    batch = Batch(1).raise_ticket("c1", {"id": "k1", "call_id": "c1", "tool": "pay"})
    ops.run(client.client, commit.suspend(owner, batch, WaitingReason.APPROVAL))
    assert client.wait(run_id, 5).status == "waiting"
    assert [call.call_id for call in client.calls(run_id)] == ["c1"]
    assert client.decide(run_id, "k1", "deny", decision_id="d1", reason="no").outcome == "accepted"
    assert client.decide(run_id, "k1", "deny", decision_id="d1", reason="no").outcome == "again"
    with pytest.raises(RunNotFound):
        client.decide("ghost", "k1", "deny")
    no_decision: Any = {"target": "k1"}
    with pytest.raises(InvalidInput, match="Decision"):
        client.decide_many(run_id, [no_decision])


def test_send_and_steer(client: Dispatcher, thread: str) -> None:
    with pytest.raises(ThreadNotFound):
        client.send(thread, "psst")
    receipt = client.send(thread, "psst", agent="clerk", mail_id="m1")
    assert client.send(thread, "psst", agent="clerk", mail_id="m1").number == receipt.number
    claim(client, thread, receipt.run_id)
    assert client.steer(thread, "look left").outcome == "steered"
    assert [mail.kind for mail in client.unread(thread)] == ["message", "steer"]


def test_events_live_from_any_offset(client: Dispatcher, thread: str) -> None:
    run_id = client.submit("clerk", "x", thread=thread).run_id
    owner = claim(client, thread, run_id)

    def work() -> None:
        for number in range(1, 4):
            batch = Batch(number, step=number).tell({"type": "text_delta", "delta": str(number)})
            ops.run(client.client, commit.commit(owner, batch))
        finish(client, owner, 4)

    worker = threading.Thread(target=work)
    worker.start()
    seen = list(client.events(run_id))
    worker.join()
    assert [entry.number for entry in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].event["type"] == "run_finish"
    assert [entry.number for entry in client.events(run_id, after=2)] == [entry.number for entry in seen[2:]]
    assert list(client.events(run_id, after=len(seen))) == []
    assert list(client.events(run_id, after=len(seen), live=False)) == []


def test_trimmed_events_are_told(client: Dispatcher, thread: str) -> None:
    run_id = client.submit("clerk", "x", thread=thread).run_id
    owner = claim(client, thread, run_id)
    ops.run(client.client, commit.commit(owner, Batch(1, step=1).tell({"type": "text_delta", "delta": "x"})))
    finish(client, owner, 2)
    client.client.xtrim(events_key(thread, run_id), maxlen=1, approximate=False)
    with pytest.raises(EventsTrimmed):
        list(client.events(run_id))


@pytest.mark.parametrize("live", [True, False])
def test_a_journal_that_is_gone_is_told(client: Dispatcher, thread: str, live: bool) -> None:
    run_id = client.submit("clerk", "x", thread=thread).run_id
    owner = claim(client, thread, run_id)
    ops.run(client.client, commit.commit(owner, Batch(1, step=1).tell({"type": "text_delta", "delta": "1"})))
    seen = list(client.events(run_id, live=False))[-1].number
    client.client.delete(events_key(thread, run_id))
    with pytest.raises(EventsTrimmed, match=run_id):
        list(client.events(run_id, live=live))
    finish(client, owner, 2)
    client.client.delete(events_key(thread, run_id))
    for after in (0, seen):
        with pytest.raises(EventsTrimmed, match=run_id):
            list(client.events(run_id, after, live=live))
    last = client.get_run(run_id).events
    assert list(client.events(run_id, last, live=live)) == []


def test_events_behind_a_number_that_there_never_was_are_refused(client: Dispatcher, thread: str) -> None:
    run_id = client.submit("clerk", "x", thread=thread).run_id
    wrongs: list[Any] = [-3, 1, 10**30, 2**64, "1", 1.5, float("nan"), None]
    for wrong in wrongs:
        with pytest.raises(InvalidInput) as caught:
            list(client.events(run_id, wrong))
        assert "\n" not in str(caught.value)
    finish(client, claim(client, thread, run_id))
    last = client.get_run(run_id).events
    assert list(client.events(run_id, last)) == []
    with pytest.raises(InvalidInput, match=str(last)):
        list(client.events(run_id, last + 1))


def test_wait_ends_with_the_run_or_the_callers_patience(client: Dispatcher, thread: str) -> None:
    run_id = client.submit("clerk", "x", thread=thread).run_id
    with pytest.raises(WaitTimeout, match=run_id):
        client.wait(run_id, 0.05)
    wrongs: list[Any] = [float("nan"), "5", [5]]
    for wrong in wrongs:
        with pytest.raises(InvalidInput, match="timeout"):
            client.wait(run_id, wrong)
    with pytest.raises(WaitTimeout):
        client.wait(run_id, float("-inf"))
    finish(client, claim(client, thread, run_id))
    for long in (float("inf"), 10**400):
        assert client.wait(run_id, long).status == "done"
    record = client.wait(run_id, 5)
    assert record.termination == Termination(kind=TerminationKind.NATURAL_END)


def test_messages_are_the_effective_view(client: Dispatcher, thread: str) -> None:
    run_id = client.submit("clerk", "x", thread=thread).run_id
    finish(client, claim(client, thread, run_id))
    assert [entry.message["role"] for entry in client.messages(thread)] == ["assistant"]


def test_retry_makes_a_new_run_of_an_ended_one(client: Dispatcher, thread: str) -> None:
    run_id = client.submit("clerk", "again please", thread=thread, priority=7).run_id
    with pytest.raises(InvalidInput, match="only a run that has ended"):
        client.retry(run_id)
    client.cancel(run_id)
    again = client.get_run(client.retry(run_id).run_id)
    assert (again.priority, again.request["metadata"]) == (7, {"retry_of": run_id})
    assert again.request["messages"][0]["content"][0]["text"] == "again please"


def test_delete_thread_leaves_nothing(client: Dispatcher, thread: str) -> None:
    run_id = client.submit("clerk", "x", thread=thread, idempotency_key="k").run_id
    with pytest.raises(ThreadBusy, match=run_id):
        client.delete_thread(thread)
    finish(client, claim(client, thread, run_id))
    assert client.delete_thread(thread) == 1
    assert list(client.client.scan_iter(match=f"postroom:{{{thread}}}:*", count=10_000)) == []
    with pytest.raises(RunNotFound):
        client.get_run(run_id)
    with pytest.raises(ThreadNotFound):
        client.delete_thread(thread)


def test_what_is_wrong_with_a_thread_names_it(client: Dispatcher, thread: str) -> None:
    for verb in (client.interrupt, client.delete_thread, lambda name: client.send(name, "psst"), client.get_thread):
        with pytest.raises(ThreadNotFound, match=thread):
            verb(thread)
    run_id = client.submit("clerk", "x", thread=thread).run_id
    with pytest.raises(ThreadBusy, match=f"{thread}.*{run_id}"):
        client.submit("clerk", "x", thread=thread, on_busy="reject")
    client.cancel(thread)
    with pytest.raises(RunNotFound, match=thread):
        client.cancel(thread)


def test_listings_are_paged_and_filtered(client: Dispatcher, thread: str) -> None:
    ids = [client.submit("lister", "x", thread=f"{thread} {i}", tenant=thread).run_id for i in range(7)]
    client.cancel(ids[0])
    found: list[str] = []
    cursor = None
    while True:
        page = client.list_runs(tenant=thread, limit=3, cursor=cursor)
        found += [run.run_id for run in page.items]
        cursor = page.cursor
        if cursor is None or len(found) >= 7:
            break
    assert sorted(found) == sorted(ids)
    assert [run.run_id for run in client.list_runs(tenant=thread, status="done", limit=200).items] == [ids[0]]
    assert thread + " 6" in _every_thread(client)
    for wrong in ({"limit": 0}, {"limit": 1000}, {"cursor": "x"}):
        with pytest.raises(InvalidInput):
            client.list_runs(**wrong)


def _every_run(client: Dispatcher, **wanted: Any) -> list[str]:
    page = client.list_runs(**wanted)
    found = [run.run_id for run in page.items]
    while page.cursor:
        page = client.list_runs(**wanted, cursor=page.cursor)
        found += [run.run_id for run in page.items]
    return found


def test_a_page_stays_where_it_is_while_new_runs_arrive(client: Dispatcher, thread: str) -> None:
    ids = [client.submit("lister", "x", thread=f"{thread} {i}", tenant=thread).run_id for i in range(4)]
    page = client.list_runs(tenant=thread, limit=2)
    late = [client.submit("lister", "x", thread=f"{thread} late {i}", tenant=thread).run_id for i in range(3)]
    rest = client.list_runs(tenant=thread, limit=2, cursor=page.cursor)
    assert sorted(run.run_id for run in (*page.items, *rest.items)) == sorted(ids)
    assert sorted(_every_run(client, tenant=thread, limit=2)) == sorted([*ids, *late])


def test_runs_of_the_same_moment_are_each_listed_once(client: Dispatcher, thread: str) -> None:
    long_ago = int(client.client.time()[0]) * 1000 - 3_600_000
    wanted = [RunRequest(run_id=new_id(), thread_id=f"{thread} {i}", tenant=thread) for i in range(450)]
    ops.run_all(client.client, [lane.submit(request, client.settings, long_ago) for request in wanted])
    ids = [request.run_id for request in wanted]
    assert _every_run(client, tenant=thread, limit=70) == sorted(ids, reverse=True)
    assert _every_run(client, tenant=thread, limit=200) == sorted(ids, reverse=True)


def test_threads_are_listed_by_agent_and_by_whether_they_work(client: Dispatcher, thread: str) -> None:
    agent = f"a-{uuid.uuid4().hex[:8]}"
    working, queued, idle, later = (f"{thread} {name}" for name in ("working", "queued", "idle", "later"))
    claim(client, working, client.submit(agent, "x", thread=working).run_id)
    client.submit(agent, "x", thread=queued)
    finish(client, claim(client, idle, client.submit(agent, "x", thread=idle).run_id))
    client.submit(agent, "x", thread=later, delay_ms=60_000)

    def listed(**wanted: Any) -> set[str]:
        found: set[str] = set()
        cursor: str | None = None
        while True:
            page = client.list_threads(agent=agent, limit=3, cursor=cursor, **wanted)
            found |= {each.thread_id for each in page.items}
            cursor = page.cursor
            if cursor is None:
                return found

    assert listed() == {working, queued, idle, later}
    assert listed(status="busy") == {working, queued}
    assert listed(status="idle") == {idle, later}
    assert client.list_threads(agent="nobody-" + agent).items == []


def test_what_a_listing_cannot_mean_is_refused(client: Dispatcher, thread: str) -> None:
    with pytest.raises(InvalidInput, match="queued, running, waiting, done"):
        client.list_runs(status="nonsense")
    with pytest.raises(InvalidInput, match="busy, idle"):
        client.list_threads(status="open")
    for _ in range(2):
        client.submit("lister", "x", thread=thread, tenant=thread)
    cursor = client.list_runs(tenant=thread, limit=1).cursor
    with pytest.raises(InvalidInput, match="this listing"):
        client.list_threads(cursor=cursor)
    wrongs: list[Any] = ["", "50", "1234", "x", "ünï", "9" * 5_000, 50]
    for wrong in wrongs:
        for listing in (client.list_runs, client.list_threads, client.list_undelivered, client.list_stranded):
            with pytest.raises(InvalidInput, match="is not one that this listing gave out") as caught:
                listing(cursor=wrong)
            assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInput, match="limit"):
        client.list_runs(limit="5")  # type: ignore[arg-type]


def _every_thread(client: Dispatcher) -> set[str]:
    page = client.list_threads(limit=200)
    found = {each.thread_id for each in page.items}
    while page.cursor:
        page = client.list_threads(limit=200, cursor=page.cursor)
        found |= {each.thread_id for each in page.items}
    return found


def test_stats_count_what_is_there(client: Dispatcher, thread: str) -> None:
    before = client.stats()
    client.submit("clerk", "x", thread=thread, queue="quiet")
    after = client.stats()
    assert after.runs == before.runs + 1
    assert after.queues["quiet"] == before.queues.get("quiet", 0) + 1


def test_the_async_client_has_the_same_verbs() -> None:
    public = {name for name in vars(Dispatcher) if not name.startswith("_")}
    assert public == {name for name in vars(AsyncDispatcher) if not name.startswith("_")}


def test_the_async_client_does_what_the_other_does(server_url: str, client: Dispatcher, thread: str) -> None:
    async def main() -> None:
        async with AsyncDispatcher(server_url) as other:
            submitted = await asyncio.gather(*(other.submit("clerk", "x", thread=thread) for _ in range(20)))
            run_id = submitted[0].run_id
            with pytest.raises(WaitTimeout):
                await other.wait(run_id, 0.05)
            following = asyncio.create_task(_collect(other, run_id))
            waiting = asyncio.create_task(other.wait(run_id, 10))
            # Verbs go on while a reader blocks on its own connection.
            assert (await other.get_run(run_id)).status == "queued"
            await asyncio.to_thread(lambda: finish(client, claim(client, thread, run_id)))
            assert (await waiting).status == "done"
            assert (await following)[-1] == "run_finish"
            assert len(await other.messages(thread)) == 1
            with pytest.raises(RunNotFound):
                await other.get_run("ghost")

    asyncio.run(main())


async def _collect(client: AsyncDispatcher, run_id: str) -> list[str]:
    return [entry.event["type"] async for entry in client.events(run_id)]


def test_importing_the_client_is_light() -> None:
    code = "import sys, postroom.dispatcher; print([m for m in ('httpx', 'rq', 'postroom.worker') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

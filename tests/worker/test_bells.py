"""Taking and answering doorbells, many in one script."""

import asyncio
import time
import uuid
import zlib
from typing import Any, cast

import pytest

from postroom.mailbox import fleet, keys, lane, lock, ops, records
from postroom.mailbox.connect import connect, connect_async
from postroom.mailbox.contracts import RunRequest, message
from postroom.mailbox.group import Group
from postroom.mailbox.ids import new_id
from postroom.mailbox.settings import Settings
from postroom.worker import bells
from postroom.worker.bells import Bell
from postroom.worker.consuming import Consumer
from postroom.worker.desk import Desk
from tests.worker.fleet_app import app

LEASE = 60_000
Rung = list[str]


@pytest.fixture
def plain(server_url: str) -> Any:
    with connect(server_url) as made:
        yield made


def ring(client: Any, queue: str, count: int) -> Rung:
    jobs = [f"{uuid.uuid4().hex}-1" for _ in range(count)]
    for job in jobs:
        client.hset(f"rq:job:{job}", "data", "[]")
        client.rpush(f"rq:queue:{queue}", job)
    return jobs


def take(client: Any, queues: list[str], count: int) -> list[Bell]:
    return ops.run(client, bells.take(queues, count, "w", LEASE, new_id()))


def test_the_first_queue_comes_first_and_no_more_is_taken_than_wanted(plain: Any) -> None:
    urgent, other = f"q-{uuid.uuid4().hex}", f"q-{uuid.uuid4().hex}"
    first, second = ring(plain, urgent, 2), ring(plain, other, 3)
    taken = take(plain, [urgent, other], 4)
    assert [(bell.job, bell.queue) for bell in taken] == [
        *((job, urgent) for job in first),
        *((job, other) for job in second[:2]),
    ]
    assert plain.lrange(f"rq:queue:{other}", 0, -1) == [second[2].encode()]
    for queue in (urgent, other):
        started = {entry.decode() for entry in plain.zrange(f"rq:wip:{queue}", 0, -1)}
        assert started == {bell.entry for bell in taken if bell.queue == queue}
    assert [plain.hget(f"rq:job:{bell.job}", "status") for bell in taken] == [b"started"] * 4


def test_only_jobs_that_rq_wrote_get_the_notes_its_own_code_wants_back(plain: Any) -> None:
    queue = f"q-{uuid.uuid4().hex}"
    ours, theirs = ring(plain, queue, 2)
    plain.hset(f"rq:job:{theirs}", "data", zlib.compress(b"[]"))
    taken = {bell.job: bell for bell in take(plain, [queue], 2)}
    assert plain.exists(f"rq:execution:{taken[ours].entry}", f"rq:executions:{ours}") == 0
    assert all(plain.ttl(key) > 0 for key in (f"rq:execution:{taken[theirs].entry}", f"rq:executions:{theirs}"))
    assert [plain.hget(f"rq:job:{job}", "worker_name") for job in (ours, theirs)] == [b"w", b"w"]


def test_a_doorbell_whose_job_is_gone_makes_room_for_the_next(plain: Any) -> None:
    queue = f"q-{uuid.uuid4().hex}"
    jobs = ring(plain, queue, 5)
    plain.delete(f"rq:job:{jobs[0]}", f"rq:job:{jobs[2]}")
    assert [bell.job for bell in take(plain, [queue], 2)] == [jobs[1], jobs[3]]
    assert plain.lrange(f"rq:queue:{queue}", 0, -1) == [jobs[4].encode()]


def test_what_is_no_longer_ours_is_neither_deleted_nor_counted(plain: Any) -> None:
    queue, worker = f"q-{uuid.uuid4().hex}", f"w-{uuid.uuid4().hex}"
    ring(plain, queue, 3)
    taken = take(plain, [queue], 3)
    plain.zrem(f"rq:wip:{queue}", taken[1].entry)
    assert ops.run(plain, bells.answered(queue, [bell.entry for bell in taken], worker)) == 2
    assert [plain.exists(f"rq:job:{bell.job}") for bell in taken] == [0, 1, 0]
    assert plain.zcard(f"rq:wip:{queue}") == 0
    assert plain.hget(bells.worker_key(worker), "successful_job_count") == b"2"


def submitted(client: Any, queue: str) -> tuple[str, str]:
    run, thread = uuid.uuid4().hex, uuid.uuid4().hex
    request = RunRequest(run_id=run, thread_id=thread, agent="a", queue=queue, messages=(message("user", "x"),))
    ops.run(client, lane.submit(request, Settings()))
    return thread, run


def lengthen(client: Any, thread: str, messages: int) -> None:
    client.hset(keys.thread(thread), "seq", messages)
    for seq in range(1, messages + 1):
        client.xadd(keys.log(thread), {"role": "user", "step": 0, "text": "x"}, f"{seq}-0")


def test_a_doorbell_comes_with_the_claim_to_its_run(plain: Any) -> None:
    queue = f"q-{uuid.uuid4().hex}"
    thread, run = submitted(plain, queue)
    (bell,) = take(plain, [queue], 4)
    assert bell.owner
    assert bell.claim
    assert (bell.owner.thread_id, bell.owner.run_id, bell.owner.fence) == (thread, run, bell.claim.fence)
    assert ops.run(plain, records.get_run(thread, run)).status == "running"
    holder = ops.run(plain, lock.holder(thread))
    assert holder
    assert (holder.run_id, holder.worker, holder.fence) == (run, "w", bell.claim.fence)


def test_a_doorbell_for_a_run_that_needs_no_worker_comes_without_a_claim(plain: Any) -> None:
    queue = f"q-{uuid.uuid4().hex}"
    thread, run = submitted(plain, queue)
    ops.run(plain, lane.cancel(thread, run))
    (bell,) = take(plain, [queue], 4)
    assert bell.opened
    assert bell.claim is None


def test_a_batch_whose_reply_was_lost_is_given_again_with_the_same_claims(plain: Any) -> None:
    queue, batch = f"q-{uuid.uuid4().hex}", new_id()
    for _ in range(3):
        submitted(plain, queue)
    first = ops.run(plain, bells.take([queue], 2, "w", LEASE, batch))
    again = ops.run(plain, bells.take([queue], 2, "w", LEASE, batch, again=True))
    assert {bell.entry: bell.owner for bell in again} == {bell.entry: bell.owner for bell in first}
    assert plain.llen(f"rq:queue:{queue}") == 1, "nothing more was taken"
    assert all(bell.claim and bell.claim.run["attempts"] == b"0" for bell in again)


def test_a_batch_that_never_came_through_is_taken_when_asked_for_again(plain: Any) -> None:
    queue = f"q-{uuid.uuid4().hex}"
    thread, run = submitted(plain, queue)
    (bell,) = ops.run(plain, bells.take([queue], 2, "w", LEASE, new_id(), again=True))
    assert bell.owner
    assert (bell.owner.thread_id, bell.owner.run_id) == (thread, run)


def test_a_take_that_comes_late_gives_nothing_to_a_worker_that_has_gone_silent(plain: Any) -> None:
    queue, worker = f"q-{uuid.uuid4().hex}", f"w-{uuid.uuid4().hex}"
    thread, run = submitted(plain, queue)
    late = bells.take([queue], 1, worker, LEASE, new_id(), left_ms=5_000)
    assert ops.run(plain, late) == [], "it never said that it is there"
    ops.run_all(plain, fleet.beat(worker, {"pid": 1, "queues": queue}, 4_000))
    assert ops.run(plain, late) == [], "its last heartbeat is too long ago"
    assert ops.run(plain, records.get_run(thread, run)).status == "queued"
    ops.run_all(plain, fleet.beat(worker, {"pid": 1, "queues": queue}, 60_000))
    assert [bell.owner and bell.owner.run_id for bell in ops.run(plain, late)] == [run]
    ops.run_all(plain, fleet.leave(worker))


def test_long_threads_are_not_all_brought_along_at_once(plain: Any) -> None:
    queue = f"q-{uuid.uuid4().hex}"
    for _ in range(4):
        lengthen(plain, submitted(plain, queue)[0], 300)
    taken = take(plain, [queue], 4)
    assert [bool(bell.claim) for bell in taken] == [True, True, False, False]
    assert not any(bell.opened for bell in taken[2:])
    name, thread, run = taken[2].call()
    assert ops.run(plain, records.get_run(thread, run)).status == "queued", f"{name} asks for it by itself"


def test_what_was_claimed_is_given_again_however_long_its_thread_is(plain: Any) -> None:
    queue, batch = f"q-{uuid.uuid4().hex}", new_id()
    # The registry tells them by name, not in the order in which they were taken.
    for name in ("b", "c", "a"):
        run, thread = f"{name}{uuid.uuid4().hex}", uuid.uuid4().hex
        request = RunRequest(run_id=run, thread_id=thread, agent="a", queue=queue, messages=(message("user", "x"),))
        ops.run(plain, lane.submit(request, Settings()))
        lengthen(plain, thread, 300)
    first = ops.run(plain, bells.take([queue], 3, "w", LEASE, batch))
    assert [bool(bell.claim) for bell in first] == [True, True, False]
    again = ops.run(plain, bells.take([queue], 0, "w", LEASE, batch, again=True))
    owners = {bell.entry: bell.owner for bell in again}
    for bell in first[:2]:
        assert owners[bell.entry] == bell.owner, "nobody else can have it, so it must be told"


@pytest.mark.parametrize("broken", ["its run", "its job"])
def test_a_doorbell_that_breaks_the_take_takes_no_other_along(plain: Any, broken: str) -> None:
    queue = f"q-{uuid.uuid4().hex}"
    _, good = submitted(plain, queue)
    thread, run = submitted(plain, queue)
    job = f"{run}-1"
    plain.delete(keys.run(thread, run) if broken == "its run" else f"rq:job:{job}")
    plain.set(keys.run(thread, run) if broken == "its run" else f"rq:job:{job}", "something else")
    _, other = submitted(plain, queue)
    taken = take(plain, [queue], 4)
    assert [bell.owner.run_id for bell in taken if bell.owner] == [good, other]
    assert plain.zcard(f"rq:wip:{queue}") == len(taken)


def test_a_worker_that_leaves_puts_back_what_it_has_not_looked_into(plain: Any, server_url: str) -> None:
    queue = f"q-{uuid.uuid4().hex}"
    runs = [submitted(plain, queue) for _ in range(3)]
    for thread, _ in runs:
        lengthen(plain, thread, 300)
    foreign = f"{uuid.uuid4().hex}-1"
    plain.hset(f"rq:job:{foreign}", "data", '["somebody.elses.job", null, ["a", "b"], {}]')
    plain.rpush(f"rq:queue:{queue}", foreign)

    async def leave() -> None:
        async with await connect_async(server_url) as client:
            desk, stopping = Desk(Group(client), app, Settings(), "w"), asyncio.Event()
            stopping.set()
            leaving = Consumer(desk, client, cast(Any, None), [queue], 4, stopping)
            await leaving._serve(take(plain, [queue], 4), time.monotonic())
            await desk.group.close()

    asyncio.run(leave())
    rung = [f"{run}-{number}" for (_, run), number in zip(runs, (2, 2, 1), strict=True)]
    assert {job.decode() for job in plain.lrange(f"rq:queue:{queue}", 0, -1)} == {*rung, foreign}
    assert plain.zcard(f"rq:wip:{queue}") == 0
    assert [plain.hget(f"rq:job:{job}", "status") for job in (*rung, foreign)] == [b"queued"] * 4

"""Taking and answering doorbells, many in one script."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from postroom.mailbox import ops
from postroom.mailbox.connect import connect
from postroom.worker import bells
from postroom.worker.bells import Bell

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
    return ops.run(client, bells.take(queues, count, "w", datetime.now(UTC)))


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
    assert all(plain.ttl(f"rq:execution:{bell.entry}") > 0 for bell in taken)


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
    assert ops.run(plain, bells.answered(taken, worker)) == 2
    assert [plain.exists(f"rq:job:{bell.job}") for bell in taken] == [0, 1, 0]
    assert plain.zcard(f"rq:wip:{queue}") == 0
    assert plain.hget(bells.worker_key(worker), "successful_job_count") == b"2"

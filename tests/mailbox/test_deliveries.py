"""What is owed to webhooks: written with the fact, hidden while under way, due again, and in the end given up."""

from collections.abc import Iterator

import pytest

from postroom.mailbox import deliveries, keys, records
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.lifecycle import WaitingReason
from postroom.mailbox.lock import Failure
from tests.mailbox.desk import LEASE, Desk

URL = "https://shop.example/hooks/postroom"


@pytest.fixture(autouse=True)
def nothing_left(desk: Desk) -> Iterator[None]:
    """Takes away what is owed to nobody there: other tests have workers on the same server, and they would call."""
    yield
    for name in owed(desk):
        desk.client.zrem(keys.OWED, name)
    for name in desk.client.zrange(keys.UNDELIVERED, 0, -1):
        if name.decode().startswith(desk.tag):
            desk.client.zrem(keys.UNDELIVERED, name)


def owed(desk: Desk) -> dict[str, int]:
    """What is owed for runs of this desk, by when."""
    every = desk.client.zrange(keys.OWED, 0, -1, withscores=True)
    return {name.decode(): int(at) for name, at in every if name.decode().startswith(desk.tag)}


def taken(desk: Desk, hidden: int = 1_000) -> list[deliveries.Delivery]:
    every = desk.run(deliveries.take(10_000, hidden, desk.now))
    return [each for each in every if each.run_id.startswith(desk.tag)]


def ended(desk: Desk) -> str:
    """The delivery owed for a run that has just ended."""
    owner = desk.started(webhook=URL)
    desk.finish(owner)
    return f"{owner.run_id}.{desk.record(owner.run_id).events}"


def test_the_end_of_a_run_is_owed_with_the_end(desk: Desk) -> None:
    assert owed(desk) == {}
    name = ended(desk)
    assert owed(desk) == {name: desk.now}
    (delivery,) = taken(desk)
    assert (delivery.id, delivery.thread_id, delivery.tries) == (name, desk.thread, 1)
    entry = desk.run(deliveries.event(delivery))
    assert entry is not None
    assert entry.event["type"] == "run_finish"
    assert desk.run(records.get_run(desk.thread, delivery.run_id)).webhook == URL


def test_a_run_without_a_webhook_owes_nothing(desk: Desk) -> None:
    desk.finish(desk.started())
    assert owed(desk) == {}


def test_every_way_to_end_and_to_wait_is_owed(desk: Desk) -> None:
    first = desk.started(webhook=URL)
    desk.suspend(first, WaitingReason.INPUT)
    assert [name.partition(".")[0] for name in owed(desk)] == [first.run_id]
    desk.cancel(first.run_id)
    second = desk.submit(webhook=URL).run_id
    desk.cancel(second)
    third = desk.started(webhook=URL)
    desk.release(third, Failure(None, 1))
    fourth = desk.started(webhook=URL)
    desk.cancel(fourth.run_id)
    desk.now += LEASE + 1
    desk.look()
    counts = [name.partition(".")[0] for name in owed(desk)]
    runs = (first.run_id, second, third.run_id, fourth.run_id)
    assert [counts.count(run) for run in runs] == [2, 1, 1, 1]


def test_one_that_was_taken_is_due_again_if_its_taker_dies(desk: Desk) -> None:
    name = ended(desk)
    assert [each.tries for each in taken(desk)] == [1]
    assert taken(desk) == []
    desk.now += 1_000
    assert [each.tries for each in taken(desk)] == [2]
    assert desk.run(deliveries.settle(name, now=desk.now)) == "delivered"
    assert desk.run(deliveries.settle(name, "too late", 1, now=desk.now)) == "gone"
    assert (owed(desk), desk.client.exists(keys.delivery(name))) == ({}, 0)


def test_one_that_failed_waits_and_is_given_up_in_the_end(desk: Desk) -> None:
    name = ended(desk)
    taken(desk)
    assert desk.run(deliveries.settle(name, "answered 500", 5_000, now=desk.now)) == "later"
    assert owed(desk) == {name: desk.now + 5_000}
    desk.now += 5_000
    taken(desk)
    assert desk.run(deliveries.settle(name, "answered 502", None, 60_000, now=desk.now)) == "given up"
    assert owed(desk) == {}
    assert desk.client.zscore(keys.UNDELIVERED, name) == desk.now
    assert 0 < desk.ttl(keys.delivery(name)) <= 60_000
    left = desk.run(deliveries.get(name))
    assert left is not None
    assert (left.wrong, left.tries) == ("answered 502", 2)
    assert desk.run(deliveries.owe_again(name, desk.now))
    assert not desk.run(deliveries.owe_again(name, desk.now))
    assert desk.ttl(keys.delivery(name)) == -1
    assert [each.tries for each in taken(desk)] == [1]


def test_what_is_left_of_a_forgotten_one_is_dropped(desk: Desk) -> None:
    name = ended(desk)
    desk.client.delete(keys.delivery(name))
    assert taken(desk) == []
    assert owed(desk) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        "ftp://shop.example/",
        "shop.example",
        "https://",
        "http://:80/",
        "http://shop.example:99999/",
        "http://shop.example:0/",
        "https://user:hush@shop.example/",
        "https://shop.example/a b",
        "https://shop.example/\r\nX-Evil: 1",
        "https://shop.example/#part",
        "http://[::1/",
        "https://shop.example/" + "x" * 2048,
    ],
)
def test_a_url_that_cannot_be_called_is_refused(desk: Desk, wrong: str) -> None:
    with pytest.raises(InvalidInput, match="webhook") as refused:
        desk.submit(webhook=wrong)
    assert "hush" not in str(refused.value)
    assert "\n" not in str(refused.value)

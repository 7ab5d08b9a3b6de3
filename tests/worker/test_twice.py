"""Saying a thing twice because the first reply was lost: it happens once."""

import pytest

from postroom.mailbox import approvals, keys, lane, ops, wire
from postroom.mailbox.contracts import Decision, parse
from postroom.mailbox.errors import PostroomError
from tests.waiting import until
from tests.worker import history
from tests.worker.fleet import Fleet
from tests.worker.proxy import Proxy


def lose_the_reply(fleet: Fleet, op: ops.Op[object]) -> None:
    """Sends a command and hangs up before the answer."""
    connection = fleet.client.connection_pool.get_connection()
    connection.send_packed_command([wire.pack_all([op.command])])
    connection.disconnect()
    fleet.client.connection_pool.release(connection)


@pytest.fixture
def taught(fleet: Fleet) -> Fleet:
    ops.load_scripts(fleet.client)
    return fleet


def test_submit(taught: Fleet) -> None:
    taught.worker()
    first = taught.request(["once"], idempotency_key="order-7")
    again = taught.request(["once"], first.thread_id, idempotency_key="order-7")
    lose_the_reply(taught, lane.submit(first, taught.settings))
    until(lambda: taught.statuses([first]) != [""], 10, "the server has it")
    for request in (first, again):
        (outcome,) = taught.dispatcher.submit_many([request])
        assert (outcome.outcome, outcome.run_id) == ("again", first.run_id)
    until(lambda: taught.all_done([first]), 10, "the run is done")
    assert taught.statuses([again]) == [""]
    assert taught.dispatcher.submit_many([first])[0].outcome == "again"
    assert history.wrong(taught, [first]) == []


def test_claim(taught: Fleet) -> None:
    """The server gives a worker the run, and the connection breaks before it hears of that."""
    with Proxy(taught.url) as proxy:
        worker = taught.worker(url=proxy.url)
        run = taught.request([{"sleep": 0.2, "say": "one"}, "two"])
        lost = proxy.lose(f"begin {run.run_id}".encode())
        taught.submit_all([run])
        assert lost.wait(10)
        fence = taught.run(run).fence
        until(lambda: taught.all_done([run]), 10, "the run is done")
        assert "taking doorbells" in worker.said()
        record = taught.run(run)
        assert (record.attempts, record.fence) == (0, fence)
        assert taught.client.hget(keys.run(run.thread_id, run.run_id), "rings") == b"1"
        assert history.wrong(taught, [run]) == []


def test_decide(taught: Fleet) -> None:
    taught.workers(2)
    run = taught.submit([{"ask": "may I?"}, "done so"])
    until(lambda: taught.status(run) == "waiting", 10, "the run waits")
    yes = parse(Decision, {"id": "d1", "target": "ticket-1", "action": "allow_once"})
    lose_the_reply(taught, approvals.decide(run.thread_id, run.run_id, [yes]))
    until(lambda: taught.all_done([run]), 10, "the run is done")
    assert taught.dispatcher.decide_many(run.run_id, [yes]).outcome == "again"
    with pytest.raises(PostroomError) as refused:
        taught.dispatcher.decide(run.run_id, "ticket-1", "deny")
    assert refused.value.code == "run_done"
    kinds = [each.event["type"] for each in taught.dispatcher.events(run.run_id, live=False)]
    assert kinds.count("decision_received") == 1
    assert history.wrong(taught, [run]) == []


def test_cancel(taught: Fleet) -> None:
    taught.worker()
    run = taught.submit(["begun", {"sleep": 300}])
    until(lambda: taught.run(run).step == 1, 10, "the run works")
    lose_the_reply(taught, lane.cancel(run.thread_id, run.run_id))
    until(lambda: taught.all_done([run]), 10, "the run stops")
    assert taught.dispatcher.cancel(run.run_id).outcome == "done"
    kinds = [each.event["type"] for each in taught.dispatcher.events(run.run_id, live=False)]
    assert (kinds.count("cancel_requested"), kinds.count("run_finish"), kinds[-1]) == (1, 1, "run_finish")

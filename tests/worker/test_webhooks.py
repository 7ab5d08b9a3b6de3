"""Whoever asked is told: once at least, with a proof of who is calling, whatever dies on the way."""

import base64
import hashlib
import hmac
import threading
from typing import Any

import pytest

from postroom.mailbox.deliveries import Delivery
from postroom.mailbox.journal import Entry
from postroom.mailbox.lifecycle import RunStatus
from postroom.mailbox.runs import RunRecord
from postroom.mailbox.settings import Settings
from postroom.worker.cli import main
from postroom.worker.webhooks import LONGEST_WAIT_MS, body, headers, payload, wait_ms
from tests.waiting import until
from tests.worker.fleet import FleetOn, Server
from tests.worker.receiver import Receiver

SECRET = "a long secret of the shop"
PATIENT = {"webhook_retry_ms": 100, "webhook_timeout_ms": 500}


def told(event: dict[str, Any], **more: object) -> dict[str, object]:
    given = {"run_id": "r1", "thread_id": "order 7", "agent": "clerk", "status": RunStatus.DONE, **more}
    record = RunRecord.model_validate(given)
    return payload(Delivery("r1.5", "order 7", "r1", 5, 1), record, Entry(5, 1_700_000_000_000, event))


def proof(secret: bytes, name: str, at: str, content: bytes) -> str:
    digest = hmac.new(secret, f"{name}.{at}.".encode() + content, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_the_payload_says_what_happened_and_whose_it_is() -> None:
    event = {"type": "run_finish", "termination": "natural_end", "result": {"response": "é"}, "step": 2}
    assert told(event, request={"metadata": {"order": 7}}, tenant="acme") == {
        "type": "run_finish",
        "delivery": "r1.5",
        "at": 1_700_000_000_000,
        "status": "done",
        "outcome": "natural_end",
        "run": "r1",
        "thread": "order 7",
        "agent": "clerk",
        "tenant": "acme",
        "step": 2,
        "result": {"response": "é"},
        "metadata": {"order": 7},
    }


def test_a_waiting_run_is_told_as_it_was_even_if_it_has_ended_since() -> None:
    found = told({"type": "run_waiting", "reason": "approval", "tickets": [{"id": "k1"}]})
    assert (found["status"], found["outcome"], found["tickets"]) == ("waiting", "approval", [{"id": "k1"}])


def test_too_large_a_payload_is_sent_without_what_made_it_large() -> None:
    event = {"type": "run_finish", "termination": "natural_end", "result": "x" * 5_000}
    sent = body(told(event), limit=1_000)
    assert len(sent) < 1_000
    assert b'"truncated":true' in sent
    assert b'"outcome":"natural_end"' in sent
    assert b"xxx" not in sent


def test_the_signature_is_that_of_the_standard() -> None:
    # The example of the specification's own libraries.
    sent = headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    )
    assert sent["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert headers("a.1", 7, b"{}", SECRET)["webhook-signature"] == proof(SECRET.encode(), "a.1", "7", b"{}")
    assert "webhook-signature" not in headers("a.1", 7, b"{}", None)


def test_tries_are_ever_further_apart_and_come_to_an_end() -> None:
    settings = Settings(webhook_tries=4, webhook_retry_ms=100)
    assert [wait_ms(tries, settings) for tries in (1, 2, 3, 4)] == [100, 200, 400, None]
    assert wait_ms(99, Settings(webhook_tries=1_000)) == LONGEST_WAIT_MS


def test_the_secret_is_not_shown() -> None:
    assert SECRET not in repr(Settings(webhook_secret=SECRET))


# -- that it is sent ---------------------------------------------------------------------------------------------------


def test_an_ended_and_a_waiting_run_are_delivered_and_signed(server: Server, fleet_on: FleetOn) -> None:
    with fleet_on(server.url) as fleet, Receiver() as receiver:
        fleet.environ["POSTROOM_WEBHOOK_SECRET"] = SECRET
        worker = fleet.worker()
        run = fleet.submit([{"ask": "may I?"}, "done so"], webhook=receiver.url)
        until(lambda: len(receiver.calls) == 1, 10, "the receiver is asked")
        assert receiver.calls[0].told["tickets"][0]["message"] == "may I?"
        fleet.dispatcher.decide(run.run_id, "ticket-1", "allow_once")
        until(lambda: len(receiver.calls) == 2, 10, "the receiver is told")
        first, last = receiver.calls
        assert (first.told["status"], first.told["outcome"]) == ("waiting", "approval")
        assert (last.told["status"], last.told["outcome"], last.told["run"]) == ("done", "natural_end", run.run_id)
        assert last.told["result"] == {"response": "done so"}
        for call in receiver.calls:
            assert call.path == "/hook?of=shop"
            assert "cookie" not in call.headers
            signed = proof(SECRET.encode(), call.headers["webhook-id"], call.headers["webhook-timestamp"], call.content)
            assert call.headers["webhook-signature"] == signed
        assert first.headers["webhook-id"] != last.headers["webhook-id"]
        until(lambda: fleet.dispatcher.stats().owed == 0, 5, "nothing is owed any more")
        assert SECRET not in worker.said()
        assert "of=shop" not in worker.said(), "a URL may carry a token"
        every = (fleet.client.dump(key) or b"" for key in fleet.client.scan_iter("postroom:*"))
        assert not [value for value in every if SECRET.encode() in value]


def test_a_receiver_that_fails_is_tried_again_under_the_same_name(server: Server, fleet_on: FleetOn) -> None:
    slow = threading.Event()

    def too_late() -> int:
        slow.wait(10)
        return 200

    with fleet_on(server.url, **PATIENT) as fleet, Receiver(500, too_late, 302, 404) as receiver:
        fleet.worker()
        fleet.submit(["done"], webhook=receiver.url)
        until(lambda: len(receiver.calls) == 5, 20, "the fifth try")
        slow.set()
        assert len({call.headers["webhook-id"] for call in receiver.calls}) == 1
        assert {call.path for call in receiver.calls} == {"/hook?of=shop"}, "redirects are not followed"
        assert len({call.content for call in receiver.calls}) == 1
        until(lambda: fleet.dispatcher.stats().owed == 0, 5, "the fifth counts")


def test_one_that_is_given_up_is_shown_and_may_be_tried_again(
    server: Server, fleet_on: FleetOn, capsys: pytest.CaptureFixture[str]
) -> None:
    def postroom(*words: str) -> tuple[int, str]:
        code = main([*words, "--url", server.url])
        return code, "".join(capsys.readouterr())

    with fleet_on(server.url, webhook_tries=2, **PATIENT) as fleet, Receiver(500, 500) as receiver:
        fleet.worker()
        run = fleet.submit(["done"], webhook=receiver.url)
        until(lambda: fleet.dispatcher.stats().undelivered == 1, 20, "it is given up")
        (left,) = fleet.dispatcher.list_undelivered().items
        assert (left.run_id, left.tries, left.wrong) == (run.run_id, 2, "the receiver answered 500")
        assert "webhooks owed 0, given up 1" in postroom("stats")[1]
        assert "BAD webhooks: 0 deliveries owed, 1 given up; see: postroom webhooks list" in postroom("doctor")[1]
        assert left.id in postroom("webhooks", "list")[1]
        assert postroom("webhooks", "retry", "ghost.1")[0] == 2
        assert postroom("webhooks", "retry") == (0, f"owed again {left.id}\n")
        until(lambda: len(receiver.calls) == 3, 10, "it is delivered after all")
        until(lambda: fleet.dispatcher.stats().owed == 0, 5, "nothing is owed any more")
        assert "ok  webhooks" in postroom("doctor")[1]


def test_nobody_there_is_a_failure_like_any_other(server: Server, fleet_on: FleetOn) -> None:
    with Receiver() as gone:
        url = gone.url
    with fleet_on(server.url, webhook_tries=1, **PATIENT) as fleet:
        fleet.worker()
        fleet.submit(["done"], webhook=url)
        until(lambda: fleet.dispatcher.stats().undelivered == 1, 20, "it is given up")
        (left,) = fleet.dispatcher.list_undelivered().items
        assert left.wrong.startswith("ConnectError")
        assert fleet.dispatcher.drop_delivery(left.id)
        assert fleet.dispatcher.stats().undelivered == 0


def test_a_worker_killed_between_the_end_and_the_delivery(server: Server, fleet_on: FleetOn) -> None:
    # It looks for deliveries when it comes up and then not for a minute.
    with fleet_on(server.url, sweep_ms=60_000, **PATIENT) as fleet, Receiver() as receiver:
        first = fleet.worker()
        run = fleet.submit(["done"], webhook=receiver.url)
        until(lambda: fleet.all_done([run]), 10, "the run is done")
        first.kill()
        assert (receiver.calls, fleet.dispatcher.stats().owed) == ([], 1)
        fleet.worker()
        until(lambda: len(receiver.calls) == 1, 10, "another worker delivers")
        assert receiver.calls[0].told["run"] == run.run_id


def test_a_worker_killed_in_the_middle_of_a_delivery(server: Server, fleet_on: FleetOn) -> None:
    answering = threading.Event()

    def at_last() -> int:
        answering.wait(20)
        return 200

    with fleet_on(server.url, **PATIENT) as fleet, Receiver(at_last) as receiver:
        first = fleet.worker()
        fleet.submit(["done"], webhook=receiver.url)
        until(lambda: len(receiver.calls) == 1, 10, "the call is under way")
        first.kill()
        answering.set()
        fleet.worker()
        until(lambda: len(receiver.calls) == 2, 10, "another worker delivers it again")
        assert len({call.headers["webhook-id"] for call in receiver.calls}) == 1
        until(lambda: fleet.dispatcher.stats().owed == 0, 5, "nothing is owed any more")


def test_a_call_under_way_is_finished_before_leaving(server: Server, fleet_on: FleetOn) -> None:
    answering = threading.Event()

    def at_last() -> int:
        answering.wait(20)
        return 200

    with fleet_on(server.url, webhook_timeout_ms=10_000) as fleet, Receiver(at_last) as receiver:
        worker = fleet.worker()
        fleet.submit(["done"], webhook=receiver.url)
        until(lambda: len(receiver.calls) == 1, 10, "the call is under way")
        worker.process.terminate()
        until(lambda: "takes no more" in worker.said(), 5, "it is told to stop")
        answering.set()
        assert worker.exit_code() == 0
        assert fleet.dispatcher.stats().owed == 0
        assert len(receiver.calls) == 1

"""Ids that users give: accepted and inert, or refused in one line; never a key of another thread."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.mailbox import keys
from postroom.mailbox.contracts import RunRequest, message, parse
from postroom.mailbox.errors import InvalidInput
from tests.mailbox.desk import Desk

HOSTILE = [
    "",
    "a}b",
    "{a}",
    "a\nb",
    "a\x00b",
    "a\x7fb",
    "x" * 257,
    "x" * 10_000,
    "é" * 200,
    "\ud800",
    "a\u2028b",
]
ODD_BUT_FINE = [
    "a b",
    "a:b",
    "a:thread",
    "t:run:x",
    "ünïcödé 漢字 🎉",
    "*",
    "a?[b]",
    "'; DROP TABLE",
    " lead",
    "%s",
    "x" * 256,
]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_ids_are_refused_in_one_line(value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        keys.check_id(value, "thread id")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("value", ODD_BUT_FINE)
def test_odd_ids_work_and_stay_their_own(desk: Desk, value: str) -> None:
    desk.thread = value[: keys.MAX_ID_BYTES - 40] + desk.thread
    other = Desk(desk.client)
    run_id = desk.submit(idempotency_key=value, tenant=value).run_id
    assert desk.submit(idempotency_key=value).run_id == run_id
    assert desk.send(mail_id=value).outcome == "accepted"
    owner = desk.owner(run_id, desk.claim(run_id).fence)
    assert desk.finish(owner, kind="stopped").outcome == "finished"
    assert other.submit(idempotency_key=value).run_id != run_id


ids = st.text(min_size=1, max_size=40)


@given(ids, ids)
def test_different_threads_never_share_a_key(one: str, other: str) -> None:
    try:
        keys.check_id(one, "thread id")
        keys.check_id(other, "thread id")
    except InvalidInput:
        return
    makers: list[Callable[[str], str]] = [
        keys.thread,
        keys.lock,
        keys.lane,
        keys.timers,
        keys.log,
        keys.mailbox,
        keys.thread_state,
    ]
    makers += [lambda thread: keys.dedupe_run(thread, other), lambda thread: keys.dedupe_mail(thread, other)]
    mine = {make(one) for make in makers}
    theirs = {make(other) for make in makers}
    assert len(mine) == len(makers)
    assert one == other or not mine & theirs


@given(st.text(max_size=80))
def test_tokens_are_what_rq_accepts(value: str) -> None:
    safe = 0 < len(value) <= 64 and all(char.isascii() and (char.isalnum() or char in "_-") for char in value)
    try:
        keys.check_token(value, "run id")
    except InvalidInput:
        assert not safe
    else:
        assert safe


@pytest.mark.parametrize(
    ("field", "value"),
    list(
        itertools.product(
            ["thread_id", "idempotency_key", "agent", "run_id", "queue", "tenant"], ["a\nb", "a\x00", "{", "x" * 10_000]
        )
    ),
)
def test_requests_check_every_id_at_the_edge(field: str, value: str) -> None:
    good = {"run_id": "r", "thread_id": "t", "messages": (message("user", "hi"),)}
    with pytest.raises(InvalidInput):
        parse(RunRequest, good | {field: value})

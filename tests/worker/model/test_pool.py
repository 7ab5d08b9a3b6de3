"""Several models under one name."""

import asyncio
import itertools
from collections import Counter
from typing import Any

import pytest

from postroom.mailbox.errors import InvalidInput
from postroom.worker.model import errors
from postroom.worker.model.base import Limits, Part, Reset
from postroom.worker.model.errors import ModelError
from postroom.worker.model.pool import Pool
from postroom.worker.model.pooling import Choice, Member, PoolPolicy, Role, SwitchOn, order, switches
from postroom.worker.model.reply import whole
from postroom.worker.model.scripted import ScriptedModel
from tests.worker.model.conftest import question

THREE = (Member("a"), Member("b"), Member("c"), Member("spare", role=Role.FAILOVER_ONLY))


def test_a_key_keeps_its_member_when_others_come_and_go() -> None:
    homes = {f"thread {n}": order(THREE, Choice.DETERMINISTIC, f"thread {n}", n)[0] for n in range(600)}
    counts = Counter(homes.values())
    assert set(counts) == {0, 1, 2}
    assert min(counts.values()) > 120
    fewer = (THREE[0], THREE[1])
    moved = [key for key, home in homes.items() if home < 2 and order(fewer, Choice.DETERMINISTIC, key, 0)[0] != home]
    assert moved == []


def test_weights_are_shares() -> None:
    members = (Member("a", 3.0), Member("b", 1.0))
    homes = Counter(order(members, Choice.DETERMINISTIC, f"thread {n}", 0)[0] for n in range(2000))
    assert 0.68 < homes[0] / 2000 < 0.82


def test_other_choices() -> None:
    assert [order(THREE, Choice.ROUND_ROBIN, "x", turn) for turn in range(4)] == [
        [0, 1, 2, 3],
        [1, 2, 0, 3],
        [2, 0, 1, 3],
        [0, 1, 2, 3],
    ]
    assert order(THREE, Choice.FIRST_HEALTHY, "x", 7) == [0, 1, 2, 3]
    assert order(THREE, Choice.DETERMINISTIC, "", 1) == [1, 2, 0, 3]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.CircuitOpen("x"), SwitchOn.CIRCUIT_OPEN),
        (errors.RateLimited("x"), SwitchOn.QUOTA),
        (errors.QuotaExhausted("x"), SwitchOn.QUOTA),
        (errors.Unauthorized("x"), SwitchOn.PERMANENT),
        (errors.RequestRejected("x"), SwitchOn.PERMANENT),
    ],
)
def test_what_makes_it_switch_can_be_turned_off(error: ModelError, reason: SwitchOn) -> None:
    assert switches(error, PoolPolicy())
    assert not switches(error, PoolPolicy(switch_on=frozenset(SwitchOn) - {reason}))


def test_it_always_switches_when_retrying_did_not_help_and_never_when_the_request_is_too_long() -> None:
    assert switches(errors.Overloaded("x"), PoolPolicy(switch_on=frozenset()))
    assert not switches(errors.ContextOverflow("x"), PoolPolicy())


def test_a_short_rate_limit_is_not_worth_a_switch() -> None:
    policy = PoolPolicy(quota_after=10)
    assert not switches(errors.RateLimited("x", 3.0), policy)
    assert switches(errors.RateLimited("x", 30.0), policy)
    assert switches(errors.RateLimited("x"), policy)


def pool(*answers: Any, **policy: Any) -> tuple[Pool, list[ScriptedModel]]:
    models = [ScriptedModel([answer], f"m{place}") for place, answer in enumerate(answers)]
    chosen = PoolPolicy(**{"choice": Choice.FIRST_HEALTHY} | policy)
    return Pool("p", [(Member(model.name), model) for model in models], chosen), models


def ask(made: Pool, **request: Any) -> list[Part]:
    async def listen() -> list[Part]:
        return [part async for part in made.stream(question(**request))]

    return asyncio.run(listen())


def test_the_next_one_answers_and_what_was_said_is_taken_back() -> None:
    made, _ = pool({"error": "circuit_open"}, {"say": "half", "error": "timeout"}, "whole")
    parts = ask(made)
    assert Reset("model_timeout") in parts
    assert whole(parts).text == "whole"


def test_nobody_answers() -> None:
    made, _ = pool({"error": "circuit_open", "retry_after": 9}, {"error": "overloaded", "retry_after": 4})
    with pytest.raises(errors.AllModelsUnavailable, match=r"pool 'p': no member answered; m0: .*; m1: ") as caught:
        ask(made)
    assert (caught.value.retry_after, caught.value.retryable) == (4, True)


def test_what_is_wrong_everywhere_is_told_as_it_is() -> None:
    made, models = pool({"error": "unauthorized"}, {"error": "request_rejected"})
    with pytest.raises(errors.RequestRejected):
        ask(made)
    assert [len(model.requests) for model in models] == [1, 1]


def test_switching_ends() -> None:
    made, models = pool(*itertools.repeat({"error": "overloaded"}, 5), max_switches=1)
    with pytest.raises(errors.PoolAttemptsExhausted, match="switched 1 times"):
        ask(made)
    assert sum(len(model.requests) for model in models) == 2


def test_too_long_is_told_at_once() -> None:
    made, models = pool({"error": "context_overflow"}, "ok")
    with pytest.raises(errors.ContextOverflow):
        ask(made)
    assert models[1].requests == []


def test_a_pool_has_no_other_name_at_a_provider() -> None:
    made, _ = pool("ok")
    with pytest.raises(errors.RequestRejected, match="leave upstream out"):
        ask(made, upstream="x")


def test_a_pool_promises_what_all_can_take() -> None:
    models = [ScriptedModel(["x"], f"m{size}", Limits(size, 10)) for size in (300, 200)]
    made = Pool("p", [(Member(model.name), model) for model in models])
    assert made.limits == Limits(200, 10)


def test_an_empty_pool_is_a_mistake() -> None:
    with pytest.raises(InvalidInput, match="'p' has no members"):
        Pool("p", [])

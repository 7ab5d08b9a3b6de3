"""A model that fails too often is left alone for a while."""

import asyncio
from typing import Any

import pytest

from postroom.worker.model.base import Part
from postroom.worker.model.breaker import Breaker
from postroom.worker.model.errors import CircuitOpen, ModelError
from postroom.worker.model.scripted import ScriptedModel
from tests.worker.model.conftest import question


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Patient:
    """A model whose answers the test gives, behind a breaker."""

    def __init__(self) -> None:
        self.answer: Any = "ok"
        self.clock = Clock()
        self.model = ScriptedModel(lambda _: self.answer)
        self.breaker = Breaker(self.model, clock=self.clock)

    def ask(self, answer: Any = "ok") -> str:
        self.answer = answer
        try:
            asyncio.run(self._listen())
        except ModelError as error:
            return error.code
        return "ok"

    async def _listen(self) -> list[Part]:
        return [part async for part in self.breaker.stream(question())]


FAILURE = {"error": "overloaded"}


def opened() -> Patient:
    patient = Patient()
    assert [patient.ask(FAILURE) for _ in range(5)] == ["model_overloaded"] * 5
    return patient


def test_five_failures_in_a_row_open_it() -> None:
    patient = opened()
    assert patient.ask() == "model_circuit_open"
    assert len(patient.model.requests) == 5


def test_a_success_in_between_keeps_it_closed() -> None:
    patient = Patient()
    for _ in range(3):
        assert [patient.ask(FAILURE) for _ in range(4)] == ["model_overloaded"] * 4
        assert patient.ask() == "ok"


@pytest.mark.parametrize("code", ["rate_limited", "request_rejected", "unauthorized", "context_overflow"])
def test_a_model_that_answers_if_only_to_refuse_is_in_order(code: str) -> None:
    patient = Patient()
    assert [patient.ask({"error": code}) for _ in range(9)] == [f"model_{code}"] * 9


def test_after_a_while_one_probe_decides() -> None:
    patient = opened()
    patient.clock.now += 29.9
    assert patient.ask() == "model_circuit_open"
    patient.clock.now += 0.2
    assert patient.ask(FAILURE) == "model_overloaded"
    assert patient.ask() == "model_circuit_open"
    patient.clock.now += 30.1
    assert patient.ask() == "ok"
    assert [patient.ask(FAILURE) for _ in range(4)] == ["model_overloaded"] * 4
    assert patient.ask() == "ok"


def test_only_one_probe_at_a_time_and_a_cancelled_one_decides_nothing() -> None:
    patient = opened()
    patient.clock.now += 31

    async def probe() -> None:
        patient.answer = {"say": "slow", "chunk": 1, "pause": 0.001}
        first: Any = patient.breaker.stream(question())
        await anext(first)
        with pytest.raises(CircuitOpen) as caught:
            await anext(aiter(patient.breaker.stream(question())))
        assert caught.value.retryable
        await first.aclose()

    asyncio.run(probe())
    assert patient.ask() == "ok"

"""What goes wrong between us and a provider: each in one clear line, with a code, and never for ever."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from postroom.mailbox.settings import Settings
from postroom.worker.model.base import Options, ReasoningPart, Request, Stop, TextPart
from postroom.worker.model.errors import ModelError, RequestRejected
from postroom.worker.model.reply import whole
from tests.waiting import until
from tests.worker.model import wires
from tests.worker.model.conftest import KEY, NAMES, Make, fail, hear, question
from tests.worker.model.provider import Provider, Reaction
from tests.worker.model.wires import CHAT, MESSAGES, RESPONSES, Answer, Call

EACH = pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
QUICK = Settings(model_connect_ms=300, model_first_token_ms=150, model_idle_ms=150, model_total_ms=2_000)
LONG = Answer(tuple(f"word{number} " for number in range(50)))


@EACH
def test_no_key(provider: Provider, models: Make, path: str) -> None:
    error = fail(models({"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": " "}), NAMES[path])
    variable = "ANTHROPIC_API_KEY" if path == MESSAGES else "OPENAI_API_KEY"
    assert error.code == "model_unauthorized"
    assert error.message == f"{NAMES[path]}: no key; set {variable} in the environment of the worker"
    assert provider.asked == []


@EACH
def test_a_wrong_key_is_refused_once_and_never_shown(provider: Provider, models: Make, path: str) -> None:
    provider.react(Reaction(status=401, body=wires.refused(path, "invalid_api_key", f"wrong key {KEY}")))
    made = models(retry={"max_retries": 5, "backoff_base_ms": 1})
    error = fail(made, NAMES[path])
    assert (error.code, error.retryable, len(provider.asked)) == ("model_unauthorized", False, 1)
    assert KEY not in f"{error} {error!r} {error.as_dict()} {made.resolve(NAMES[path])!r}"
    assert "set the right one" in error.message


@EACH
@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_no_log_holds_a_key(
    provider: Provider, models: Make, caplog: pytest.LogCaptureFixture, path: str, status: int
) -> None:
    body = wires.refused(path, "whatever", f"your key is {KEY}")
    provider.react(
        Reaction(LONG) if status == 200 else Reaction(status=status, body=body), Reaction(status=401, body=body)
    )
    with caplog.at_level(logging.DEBUG):
        made = models(retry={"max_retries": 1, "backoff_base_ms": 1})
        try:
            told = str(hear(made, NAMES[path]))
        except ModelError as error:
            told = f"{error!r}"
    assert caplog.text
    assert KEY not in told + caplog.text


def test_a_key_that_a_provider_repeats_is_not_shown(provider: Provider, models: Make) -> None:
    said = wires.refused(CHAT, "server_error", "what is hunter2 supposed to be?")
    provider.react(Reaction(status=400, body=said), Reaction(frames=[wires.event(said)]))
    for _ in range(2):
        error = fail(models({"OPENAI_API_KEY": "hunter2"}), "openai:m")
        assert "what is … supposed to be?" in error.message


@EACH
def test_an_unknown_model(provider: Provider, models: Make, path: str) -> None:
    provider.react(Reaction(status=404, body=wires.refused(path, "model_not_found", "The model `m` does not exist")))
    error = fail(models(retry={"max_retries": 5, "backoff_base_ms": 1}), NAMES[path])
    assert error.code == "model_not_found"
    assert error.message == f"{NAMES[path]}: The model `m` does not exist (HTTP 404)"
    assert len(provider.asked) == 1


def test_an_unreachable_host(models: Make) -> None:
    with socket.socket() as taken:
        # Bound but not listening: the port is ours, and every connection to it is refused.
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        name = f"openai-compatible:m@{address}"
        error = fail(models(retry={"max_retries": 2, "backoff_base_ms": 1}), name)
    assert error.code == "model_unreachable"
    assert error.message.startswith(f"{name}: the provider cannot be reached (")


def test_a_host_that_has_no_address(models: Make) -> None:
    error = fail(models(), "openai-compatible:m@http://nowhere.invalid/v1")
    assert error.code == "model_unreachable"


@EACH
def test_rate_limited_with_a_time(provider: Provider, models: Make, path: str) -> None:
    body = wires.refused(path, "rate_limit_error", "slow down")
    provider.react(Reaction(status=429, headers={"retry-after": "7"}, body=body))
    error = fail(models(), NAMES[path])
    assert (error.code, error.retry_after, error.retryable) == ("model_rate_limited", 7.0, True)


@EACH
def test_rate_limited_then_not(provider: Provider, models: Make, path: str) -> None:
    body = wires.refused(path, "rate_limit_error", "slow down")
    provider.react(Reaction(status=429, headers={"retry-after-ms": "120"}, body=body), Answer(("ok",)))
    began = time.monotonic()
    assert whole(hear(models(retry={"backoff_base_ms": 1}), NAMES[path])).text == "ok"
    assert time.monotonic() - began >= 0.12


@EACH
def test_overloaded_is_retried_and_given_up(provider: Provider, models: Make, path: str) -> None:
    full = Reaction(status=529, body=wires.refused(path, "overloaded_error", "Overloaded"))
    provider.react(full, full, full, full)
    error = fail(models(retry={"overloaded_backoff_base_ms": 1}), NAMES[path])
    assert (error.code, len(provider.asked)) == ("model_overloaded", 3)


@EACH
def test_too_long_is_for_the_caller(provider: Provider, models: Make, path: str) -> None:
    provider.react(Reaction(status=400, body=wires.refused(path, "invalid_request_error", "prompt is too long: 9 > 8")))
    error = fail(models(retry={"max_retries": 5, "backoff_base_ms": 1}), NAMES[path])
    assert (error.code, len(provider.asked)) == ("model_context_overflow", 1)


@EACH
def test_slow_first_token(provider: Provider, models: Make, path: str) -> None:
    provider.react(Reaction(LONG, delay=30))
    error = fail(models(settings=QUICK), NAMES[path])
    assert error.code == "model_timeout"
    until(provider.left_early.is_set, 5, "the stream was closed")


@EACH
def test_signs_of_life_are_no_first_token(provider: Provider, models: Make, path: str) -> None:
    provider.react(Reaction(frames=(b": processing\n\n" for _ in range(1000)), pace=0.02))
    error = fail(models(settings=QUICK), NAMES[path])
    assert (error.code, "no first token in 0.15 s" in error.message) == ("model_timeout", True)


@EACH
def test_a_stall_in_the_middle(provider: Provider, models: Make, path: str) -> None:
    provider.react(Reaction(LONG, stall_after=20))
    error = fail(models(settings=QUICK), NAMES[path])
    assert (error.code, "silent for 0.15 s" in error.message) == ("model_timeout", True)
    until(provider.left_early.is_set, 5, "the stream was closed")


@EACH
def test_an_answer_without_end(provider: Provider, models: Make, path: str) -> None:
    settings = Settings(model_first_token_ms=5_000, model_idle_ms=5_000, model_total_ms=300)
    provider.react(Reaction(LONG, pace=0.05))
    error = fail(models(settings=settings), NAMES[path])
    assert (error.code, "no end of the answer in 0.3 s" in error.message) == ("model_timeout", True)


def test_a_model_that_thinks_gets_twice_the_time(provider: Provider, models: Make) -> None:
    provider.react(Reaction(LONG, delay=0.2), Reaction(LONG, delay=0.2))
    assert fail(models(settings=QUICK), "openai:m").code == "model_timeout"
    assert whole(hear(models(settings=QUICK), "openai:m", question(options=Options(effort="low")))).stop


@EACH
def test_the_answer_breaks_off(provider: Provider, models: Make, path: str) -> None:
    provider.react(Reaction(LONG, break_after=20))
    assert fail(models(), NAMES[path]).code == "model_stream_interrupted"


@EACH
def test_the_answer_ends_early_but_properly(provider: Provider, models: Make, path: str) -> None:
    provider.react(Reaction(frames=wires.frames(path, LONG)[:20]))
    error = fail(models(), NAMES[path])
    assert (error.code, "before the model said why" in error.message) == ("model_stream_interrupted", True)


@EACH
def test_an_error_in_the_middle(provider: Provider, models: Make, path: str) -> None:
    body = wires.refused(path, "overloaded_error" if path == MESSAGES else "server_error", "Overloaded")
    if path == RESPONSES:
        body = {"type": "error", "code": "server_error", "message": "Overloaded", "param": None, "sequence_number": 9}
    provider.react(Reaction(frames=[*wires.frames(path, LONG)[:20], wires.event(body, "error")]))
    error = fail(models(), NAMES[path])
    assert error.code == ("model_overloaded" if path == MESSAGES else "model_provider_failed")
    assert error.message == f"{NAMES[path]}: Overloaded"


def test_a_failed_response(provider: Provider, models: Make) -> None:
    failed = {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "Slow down"}}
    provider.react(Reaction(frames=[wires.event({"type": "response.failed", "response": failed})]))
    assert fail(models(), "openai-responses:m").code == "model_rate_limited"


@EACH
@pytest.mark.parametrize("data", [b"data: {oops\n\n", b"data: [1]\n\n", b'data: {"type": "content_block_delta"}\n\n'])
def test_nonsense_in_the_middle(provider: Provider, models: Make, path: str, data: bytes) -> None:
    provider.react(Reaction(frames=[*wires.frames(path, LONG)[:10], data]))
    assert fail(models(), NAMES[path]).code == "model_stream_interrupted"


@EACH
def test_a_page_instead_of_an_answer(provider: Provider, models: Make, path: str) -> None:
    provider.react(Reaction(body=b"<html>welcome</html>"))
    assert fail(models(), NAMES[path]).code == "model_provider_failed"


def test_an_endpoint_that_is_not_there(provider: Provider, models: Make) -> None:
    assert fail(models(), f"openai-compatible:m@{provider.url}/v2").code == "model_not_found"


def test_a_blank_name_for_the_model(models: Make) -> None:
    assert isinstance(fail(models(), "openai:m", question(upstream=" ")), RequestRejected)


def test_a_broken_answer_is_continued(provider: Provider, models: Make) -> None:
    provider.react(Reaction(LONG, break_after=6), Answer(("and so on.",)))
    parts = hear(models(retry={"backoff_base_ms": 1}), "anthropic:m")
    assert whole(parts).text == "word0 word1 word2 and so on."
    asked = provider.asked[1].body["messages"]
    assert [turn["role"] for turn in asked] == ["user", "assistant", "user"]
    assert asked[1]["content"][0]["text"] == "word0 word1 word2 "
    assert whole(parts).usage.output_tokens > 30


def test_complete_calls_of_a_broken_answer_are_kept(provider: Provider, models: Make) -> None:
    calls = (Call("a", "f", ('{"x": 1}',)), Call("b", "f", ('{"x": ', "2}")))
    provider.react(Reaction(frames=wires.frames(CHAT, Answer(("Hm. ",), calls=calls))[:6]))
    reply = whole(hear(models(retry={"backoff_base_ms": 1}), "openai:m"))
    assert [call.id for call in reply.calls] == ["a"]
    assert [call.id for call in reply.dropped] == ["b"]
    assert len(provider.asked) == 1


@EACH
@pytest.mark.parametrize("how", ["close", "cancel"])
def test_giving_up_closes_the_connection_at_once(provider: Provider, models: Make, path: str, how: str) -> None:
    provider.react(Reaction(LONG, stall_after=20))
    made = models(models={NAMES[path]: {"requests_per_minute": 10}}, pools={"p": {"members": [{"model": NAMES[path]}]}})

    async def listen(parts: AsyncIterator[Any], spoken: asyncio.Event) -> None:
        async for part in parts:
            if isinstance(part, TextPart | ReasoningPart):
                spoken.set()

    async def give_up() -> None:
        parts: Any = made.resolve("p").stream(question())
        if how == "close":
            async for part in parts:
                if isinstance(part, TextPart):
                    break
            await parts.aclose()
        else:
            spoken = asyncio.Event()
            task = asyncio.create_task(listen(parts, spoken))
            await spoken.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        # Noticed while our loop is still there, so it was not the end of the process that closed it.
        await asyncio.to_thread(until, provider.left_early.is_set, 5, "the stream was closed")
        await made.close()

    asyncio.run(give_up())


def test_two_hundred_answers_at_once(provider: Provider, models: Make) -> None:
    made = models()
    answer = Reaction(Answer(("tick ",) * 20), pace=0.02)
    provider.react(*(answer for _ in range(200)))

    async def one() -> int:
        parts = [part async for part in made.resolve("openai:m").stream(question())]
        assert isinstance(parts[-1], Stop)
        return sum(isinstance(part, TextPart) for part in parts)

    async def ask() -> list[int]:
        found = await asyncio.gather(*(one() for _ in range(200)))
        await made.close()
        return found

    assert asyncio.run(ask()) == [20] * 200
    assert provider.most_streaming == 200


def test_a_request_may_be_empty_of_words(provider: Provider, models: Make) -> None:
    assert whole(hear(models(), "openai:m", Request(()))).text == "Hello"

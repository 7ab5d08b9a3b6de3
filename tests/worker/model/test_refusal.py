"""What a provider's refusal means."""

import pytest

from postroom.worker.model import errors
from postroom.worker.model.errors import ModelError
from postroom.worker.model.refusal import refusal, retry_after


def openai(code: str | int | None, message: str = "no", kind: str = "invalid_request_error") -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic(kind: str, message: str = "no") -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message}}


MEANINGS: list[tuple[int | None, object, type[ModelError]]] = [
    (400, openai(None), errors.RequestRejected),
    (400, openai("context_length_exceeded"), errors.ContextOverflow),
    (400, openai(None, "This model's maximum context length is 128000 tokens."), errors.ContextOverflow),
    (
        400,
        openai(400, "However, the model's context length is only 1024 tokens", "BadRequestError"),
        errors.ContextOverflow,
    ),
    (
        400,
        openai(400, "the request exceeds the available context size", "exceed_context_size_error"),
        errors.ContextOverflow,
    ),
    (
        400,
        anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        errors.ContextOverflow,
    ),
    (
        400,
        anthropic(
            "invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000"
        ),
        errors.ContextOverflow,
    ),
    (413, anthropic("request_too_large"), errors.ContextOverflow),
    (400, openai("content_filter"), errors.ContentFiltered),
    (401, openai("invalid_api_key"), errors.Unauthorized),
    (403, anthropic("permission_error"), errors.Unauthorized),
    (404, openai("model_not_found"), errors.ModelNotFound),
    (404, anthropic("not_found_error"), errors.ModelNotFound),
    (404, {"detail": "Not Found"}, errors.ModelNotFound),
    (402, openai(402, "more credits are needed"), errors.QuotaExhausted),
    (429, openai("insufficient_quota", kind="insufficient_quota"), errors.QuotaExhausted),
    (429, openai("rate_limit_exceeded", kind="tokens"), errors.RateLimited),
    (429, anthropic("rate_limit_error"), errors.RateLimited),
    (429, "slow down", errors.RateLimited),
    (408, "", errors.ModelTimeout),
    (500, openai("server_error", kind="server_error"), errors.ProviderFailed),
    (502, "<html>bad gateway</html>", errors.ProviderFailed),
    (503, "", errors.Overloaded),
    (504, "", errors.ModelTimeout),
    (529, anthropic("overloaded_error"), errors.Overloaded),
    (418, "", errors.RequestRejected),
    (302, "", errors.RequestRejected),
    (None, anthropic("overloaded_error"), errors.Overloaded),
    (None, anthropic("something_new"), errors.ProviderFailed),
    (None, openai(429, "busy"), errors.RateLimited),
    (None, {"error": {"code": 429, "message": "busy"}}, errors.RateLimited),
    (None, {"error": "overloaded"}, errors.ProviderFailed),
    (400, [openai(None)], errors.RequestRejected),
]


@pytest.mark.parametrize(("status", "body", "kind"), MEANINGS)
def test_meanings(status: int | None, body: object, kind: type[ModelError]) -> None:
    found = refusal("openai:m", body, status)
    assert type(found) is kind
    assert "\n" not in found.message
    assert found.message.startswith("openai:m: ")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:16:50 GMT"}, 10.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-3"}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=1000.0) == seconds
    assert refusal("m", "", 429, headers, 1000.0).retry_after == seconds


def test_no_key_is_ever_repeated() -> None:
    quoted = openai("invalid_api_key", "Incorrect API key provided: sk-proj-abc***xyz.")
    found = refusal("openai:m", quoted, 401, key_variable="OPENAI_API_KEY")
    assert found.message == "openai:m: the provider refused the key in OPENAI_API_KEY (HTTP 401); set the right one"
    assert "sk-" not in refusal("openai:m", openai(None, "bad key sk-proj-abc123 here"), 400).message
    assert len(refusal("openai:m", "x" * 10_000, 400).message) < 400

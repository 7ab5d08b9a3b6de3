"""What a provider's refusal means: status, headers and body of an answer as one of our errors."""

import email.utils
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from postroom.mailbox.foreign import from_json
from postroom.worker.model import errors
from postroom.worker.model.errors import ModelError

BY_STATUS: Final[dict[int, type[ModelError]]] = {
    400: errors.RequestRejected,
    401: errors.Unauthorized,
    402: errors.QuotaExhausted,
    403: errors.Unauthorized,
    404: errors.ModelNotFound,
    408: errors.ModelTimeout,
    409: errors.ProviderFailed,
    413: errors.ContextOverflow,
    429: errors.RateLimited,
    503: errors.Overloaded,
    504: errors.ModelTimeout,
    529: errors.Overloaded,
}
# What providers call it in the body; it says more than the status, and in the middle of a stream it is all there is.
BY_CODE: Final[dict[str, type[ModelError]]] = {
    "api_error": errors.ProviderFailed,
    "authentication_error": errors.Unauthorized,
    "billing_error": errors.QuotaExhausted,
    "content_filter": errors.ContentFiltered,
    "content_policy_violation": errors.ContentFiltered,
    "context_length_exceeded": errors.ContextOverflow,
    "deploymentnotfound": errors.ModelNotFound,
    "exceed_context_size_error": errors.ContextOverflow,
    "image_content_policy_violation": errors.ContentFiltered,
    "insufficient_quota": errors.QuotaExhausted,
    "invalid_api_key": errors.Unauthorized,
    "invalid_request_error": errors.RequestRejected,
    "model_not_found": errors.ModelNotFound,
    "not_found_error": errors.ModelNotFound,
    "overloaded_error": errors.Overloaded,
    "permission_error": errors.Unauthorized,
    "rate_limit_error": errors.RateLimited,
    "rate_limit_exceeded": errors.RateLimited,
    "request_too_large": errors.ContextOverflow,
    "server_error": errors.ProviderFailed,
    "server_is_overloaded": errors.Overloaded,
    "timeout_error": errors.ModelTimeout,
    "tokens": errors.RateLimited,
    "requests": errors.RateLimited,
}
# Too long is told in many words and under codes that stand for anything.
_TOO_LONG: Final = re.compile(
    r"maximum context length|context length is only|prompt is too long|input is too long|exceeds? (the )?(model'?s )?"
    r"(available |maximum )?context|exceed context limit|context window|too many (input )?tokens",
    re.IGNORECASE,
)
_MASKED_KEY: Final = re.compile(r"\b(sk|pk|key)-[A-Za-z0-9_*.-]{4,}")
LONGEST_LINE: Final = 300


def refusal(
    model: str,
    body: Any,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    now: float = 0.0,
    key_variable: str = "",
) -> ModelError:
    """The error a refusal stands for, in one line that names the model and never a key."""
    codes, message = _said(body)
    kind = _kind(status, codes, message)
    where = f" (HTTP {status})" if status else ""
    wait = retry_after(headers or {}, now)
    if kind is errors.Unauthorized:
        # What the provider says about a key may quote it.
        told = f"the key in {key_variable}" if key_variable else "the request without a key"
        return kind(f"{model}: the provider refused {told}{where}; set the right one", wait)
    return kind(f"{model}: {clean(message) or 'the provider gave no reason'}{where}", wait)


def clean(text: str) -> str:
    """A provider's words as one line of reasonable length, without anything that looks like a key."""
    line = _MASKED_KEY.sub("…", " ".join(text.split()))
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"


def parsed(body: bytes) -> Any:
    """A body as data, or as the text it is."""
    try:
        return from_json(body)
    except ValueError:
        return body.decode("utf-8", "replace")


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """How many seconds the provider asks us to wait."""
    for header, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(header, "")) / unit
        except ValueError:
            continue
        return seconds if math.isfinite(seconds) and seconds >= 0 else None
    try:
        then = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, then.timestamp() - now)


def _said(body: Any) -> tuple[list[str], str]:
    """The codes and the message, wherever this provider puts them."""
    found = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(found, list):
        return _said(found[0]) if found else ([], "")
    if not isinstance(found, dict):
        return [], str(found or "")
    codes = [str(found[name]).lower() for name in ("code", "type", "status") if found.get(name)]
    return codes, str(found.get("message") or found.get("detail") or "")


def _kind(status: int | None, codes: list[str], message: str) -> type[ModelError]:
    told = next((BY_CODE[code] for code in codes if code in BY_CODE), None)
    if status is None:
        status = next((int(code) for code in codes if code.isdecimal() and 400 <= int(code) < 600), None)
    by_status = BY_STATUS.get(status or 0)
    if by_status is None and status is not None:
        by_status = errors.ProviderFailed if status >= 500 else errors.RequestRejected
    kind = told or by_status or errors.ProviderFailed
    # A general word such as invalid_request_error must not hide a status that says more.
    if kind is errors.RequestRejected and by_status not in (None, errors.RequestRejected):
        kind = by_status or kind
    if kind is errors.RequestRejected and _TOO_LONG.search(message):
        return errors.ContextOverflow
    return kind

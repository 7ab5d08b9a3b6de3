"""What can go wrong with a model, sorted by who must react.

ModelError
├── Transient                 the same request may succeed in a moment
│   ├── ProviderFailed
│   ├── RateLimited
│   ├── Overloaded
│   ├── ModelTimeout
│   ├── ModelUnreachable
│   └── StreamInterrupted
├── Permanent                 the same request will fail again
│   ├── ContextOverflow
│   ├── RequestRejected
│   ├── Unauthorized
│   ├── ModelNotFound
│   ├── QuotaExhausted
│   └── ContentFiltered
└── Unavailable               nobody is left to ask
    ├── CircuitOpen
    ├── AllModelsUnavailable
    └── PoolAttemptsExhausted
"""

from postroom.mailbox.errors import PostroomError


class ModelError(PostroomError):
    """Base of all; `retry_after` is in seconds and what the provider asked for."""

    code = "model_error"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Transient(ModelError):
    """The same request may succeed in a moment."""

    code = "model_transient"
    retryable = True


class ProviderFailed(Transient):
    """The provider had an error of its own."""

    code = "model_provider_failed"


class RateLimited(Transient):
    """Too many requests or tokens for now."""

    code = "model_rate_limited"


class Overloaded(Transient):
    """The provider has no capacity for now."""

    code = "model_overloaded"


class ModelTimeout(Transient):
    """No connection, no first token, no next token or no end in time."""

    code = "model_timeout"


class ModelUnreachable(Transient):
    """Nobody answers at the provider's address."""

    code = "model_unreachable"


class StreamInterrupted(Transient):
    """The answer broke off."""

    code = "model_stream_interrupted"


class Permanent(ModelError):
    """The same request will fail again."""

    code = "model_permanent"


class ContextOverflow(Permanent):
    """The request is longer than the model can read."""

    code = "model_context_overflow"


class RequestRejected(Permanent):
    """The provider does not understand or allow the request."""

    code = "model_request_rejected"


class Unauthorized(Permanent):
    """No key, or not the right one."""

    code = "model_unauthorized"


class ModelNotFound(Permanent):
    """The provider has no such model."""

    code = "model_not_found"


class QuotaExhausted(Permanent):
    """What was paid for is used up."""

    code = "model_quota_exhausted"


class ContentFiltered(Permanent):
    """The provider refuses the content."""

    code = "model_content_filtered"


class Unavailable(ModelError):
    """Nobody is left to ask."""

    code = "model_unavailable"


class CircuitOpen(Unavailable):
    """The model failed too often just now and is left alone for a while."""

    code = "model_circuit_open"
    retryable = True


class AllModelsUnavailable(Unavailable):
    """Every member of a pool is out of order."""

    code = "model_all_unavailable"
    retryable = True


class PoolAttemptsExhausted(Unavailable):
    """A pool has switched as often as it may."""

    code = "model_pool_exhausted"
    retryable = True

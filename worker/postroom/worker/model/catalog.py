"""What is known of models beforehand, and what an operator says about them in a file."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError, model_validator

from postroom.mailbox.contracts import Contract, invalid
from postroom.mailbox.errors import InvalidInput
from postroom.worker.model.base import Limits
from postroom.worker.model.pooling import Choice, Role, SwitchOn
from postroom.worker.model.retry import RetryPolicy

# Context window and longest answer in tokens, by the beginning of a name; the longest beginning counts. Where providers
# have changed their minds the smaller number stands: compacting early is cheaper than being refused.
SIZES: Final[dict[str, tuple[int, int]]] = {
    "claude-3-5": (200_000, 8_192),
    "claude-3-7": (200_000, 64_000),
    "claude-haiku-4-5": (200_000, 64_000),
    "claude-opus-4": (200_000, 32_000),
    "claude-opus-4-5": (200_000, 64_000),
    "claude-sonnet-4": (200_000, 64_000),
    "claude-fable-5": (1_000_000, 128_000),
    "claude-haiku-5": (1_000_000, 128_000),
    "claude-opus-5": (1_000_000, 128_000),
    "claude-sonnet-5": (1_000_000, 128_000),
    "gpt-4o": (128_000, 16_384),
    "gpt-4.1": (1_047_576, 32_768),
    "gpt-5": (400_000, 128_000),
    "gpt-5-chat": (128_000, 16_384),
    "gpt-5.4": (400_000, 128_000),
    "o1": (200_000, 100_000),
    "o3": (200_000, 100_000),
    "o4-mini": (200_000, 100_000),
}
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Amount = Annotated[int, Field(gt=0, le=10**9)]


class ModelSpec(Contract):
    """What an operator says about a model; `model` makes the entry a name of one's own for another."""

    model: Annotated[str, Field(min_length=1)] | None = None
    context_window: Amount | None = None
    max_output_tokens: Amount | None = None
    input_price: Price | None = None
    output_price: Price | None = None
    cached_input_price: Price | None = None
    cache_write_price: Price | None = None
    requests_per_minute: Amount | None = None
    tokens_per_minute: Amount | None = None
    key: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    reasoning: bool | None = None
    streaming: bool = True

    @model_validator(mode="after")
    def _fits(self) -> "ModelSpec":
        if self.context_window and self.max_output_tokens and self.max_output_tokens > self.context_window:
            raise ValueError("max_output_tokens is more than the context_window can hold")
        return self

    def limits(self, known: Limits) -> Limits:
        """What is known, with what the operator knows better."""
        told = self.model_dump(include=set(Limits.__slots__), exclude_none=True)
        return Limits(**{name: told.get(name, getattr(known, name)) for name in Limits.__slots__})


class MemberSpec(Contract):
    """A model's place in a pool."""

    model: Annotated[str, Field(min_length=1)]
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    role: Role = Role.MEMBER


class PoolSpec(Contract):
    """Several models under one name."""

    members: Annotated[tuple[MemberSpec, ...], Field(min_length=1)]
    choose: Choice = Choice.DETERMINISTIC
    switch_on: frozenset[SwitchOn] = frozenset(SwitchOn)
    quota_after_s: Annotated[float, Field(ge=0)] = 0.0
    max_switches: Annotated[int, Field(ge=0)] = 3


class RetrySpec(Contract):
    """How patient to be with providers; times are milliseconds, as everywhere an operator writes them."""

    max_retries: Annotated[int, Field(ge=0, le=100)] = 2
    max_stream_retries: Annotated[int, Field(ge=0, le=100)] = 2
    backoff_base_ms: Amount = 500
    overloaded_backoff_base_ms: Amount = 2_000
    longest_wait_ms: Amount = 8_000
    patience_ms: Amount = 60_000

    def policy(self) -> RetryPolicy:
        """As the wrapper wants it."""
        return RetryPolicy(
            self.max_retries,
            self.max_stream_retries,
            self.backoff_base_ms / 1000,
            self.overloaded_backoff_base_ms / 1000,
            self.longest_wait_ms / 1000,
            self.patience_ms / 1000,
        )


class _File(Contract):
    """The file as it is written."""

    models: dict[str, ModelSpec] = Field(default_factory=dict)
    pools: dict[str, PoolSpec] = Field(default_factory=dict)
    retry: RetrySpec = Field(default_factory=RetrySpec)

    @model_validator(mode="after")
    def _one_meaning(self) -> "_File":
        if both := sorted(self.models.keys() & self.pools.keys()):
            raise ValueError(f"{both[0]!r} is the name of a model and of a pool")
        return self


@dataclass(frozen=True, slots=True)
class Catalog:
    """All that is known of models."""

    models: Mapping[str, ModelSpec] = field(default_factory=dict)
    pools: Mapping[str, PoolSpec] = field(default_factory=dict)
    retry: RetryPolicy = RetryPolicy()


def read(path: Path | None) -> Catalog:
    """The operator's file; a mistake in it is one line that names the place."""
    if path is None:
        return Catalog()
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"POSTROOM_MODELS={path}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(f"POSTROOM_MODELS={path} is not TOML: {error}") from None
    return catalog(found)


def catalog(data: Mapping[str, Any], where: str = "POSTROOM_MODELS") -> Catalog:
    """A catalog from plain data."""
    try:
        found = _File.model_validate(data)
    except ValidationError as error:
        raise invalid(where, error) from None
    return Catalog(found.models, found.pools, found.retry.policy())


def sizes(upstream: str) -> Limits:
    """What is known of a model by its name alone; some gateways put the vendor in front of it."""
    bare = upstream.rpartition("/")[2].lower()
    known = max((name for name in SIZES if bare.startswith(name)), key=len, default="")
    return Limits(*SIZES[known]) if known else Limits()

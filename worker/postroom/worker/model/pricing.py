"""What an answer cost, when prices are known. Prices are in dollars for a million tokens."""

from postroom.mailbox.contracts import Usage
from postroom.worker.model.base import Limits

MILLION = 1_000_000


def priced(usage: Usage, limits: Limits) -> Usage:
    """The usage with its cost. Input counts what was read from or written to the cache, output counts reasoning."""
    if limits.input_price is None or limits.output_price is None:
        return usage
    fresh = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    cost = (
        fresh * limits.input_price
        + usage.cache_read_tokens * _or(limits.cached_input_price, limits.input_price)
        + usage.cache_write_tokens * _or(limits.cache_write_price, limits.input_price)
        + usage.output_tokens * limits.output_price
    ) / MILLION
    return usage.model_copy(update={"cost_usd": cost})


def _or(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price

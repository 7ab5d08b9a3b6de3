"""Models by name: `openai:gpt-…`, `anthropic:claude-…`, `openai-compatible:…@http://…`, `scripted:…`, or a pool."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.settings import Settings
from postroom.worker.model import effort, recorded, scripted
from postroom.worker.model.anthropic import Messages
from postroom.worker.model.base import Model
from postroom.worker.model.breaker import Breaker
from postroom.worker.model.catalog import Catalog, ModelSpec, PoolSpec, read, sizes
from postroom.worker.model.http import Http, Timeouts
from postroom.worker.model.limited import Gate, Limited
from postroom.worker.model.openai_chat import ChatCompletions
from postroom.worker.model.openai_responses import Responses
from postroom.worker.model.pool import Pool
from postroom.worker.model.pooling import Member, PoolPolicy
from postroom.worker.model.provider import Address, ProviderModel
from postroom.worker.model.retrying import Retrying
from postroom.worker.model.wire import Card, Wire


@dataclass(frozen=True, slots=True)
class Provider:
    """Where a provider is by default, which variables say otherwise, and what it speaks."""

    wire: Callable[[], Wire]
    key: str
    base_url: str = ""
    base_variable: str = ""
    key_needed: bool = True
    plain: bool = False


PROVIDERS: Final = {
    "openai": Provider(ChatCompletions, "OPENAI_API_KEY", "https://api.openai.com/v1", "OPENAI_BASE_URL"),
    "openai-responses": Provider(Responses, "OPENAI_API_KEY", "https://api.openai.com/v1", "OPENAI_BASE_URL"),
    "openai-compatible": Provider(ChatCompletions, "OPENAI_COMPATIBLE_API_KEY", key_needed=False, plain=True),
    "anthropic": Provider(Messages, "ANTHROPIC_API_KEY", "https://api.anthropic.com", "ANTHROPIC_BASE_URL"),
}


class Models:
    """Makes models of names and remembers them: whoever names the same model shares its connections and its breaker."""

    def __init__(
        self,
        settings: Settings | None = None,
        catalog: Catalog | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        settings = settings or Settings.from_env(self._environ)
        self._catalog = read(settings.models) if catalog is None else catalog
        self._times = Timeouts.of(settings)
        self.http = Http(settings.model_http2)
        self.gate = Gate()
        self._known: dict[str, Model] = {}

    def resolve(self, name: str) -> Model:
        """The model of a name, or one line that says what is wrong with it."""
        if name not in self._known:
            self._known[name] = self._make(name, ())
        return self._known[name]

    async def close(self) -> None:
        """Closes the connections to providers, and the way to the fleet."""
        self.gate.group = None
        await self.http.close()

    def _make(self, name: str, within: tuple[str, ...]) -> Model:
        if name in within:
            raise InvalidInput(f"model {name!r} is made of itself: {' → '.join((*within, name))}")
        if pool := self._catalog.pools.get(name):
            return self._pool(name, pool, (*within, name))
        spec = self._catalog.models.get(name) or ModelSpec()
        if spec.model and spec.model in self._catalog.pools:
            raise InvalidInput(f"model {name!r} is said to be {spec.model!r}, which is a pool; name the pool itself")
        kind, _, rest = (spec.model or name).partition(":")
        if kind == "scripted":
            return scripted.parse(name, rest)
        if kind == "recorded":
            return recorded.Replay.read(rest)
        if kind not in PROVIDERS or not rest:
            known = ", ".join(f"{each}:…" for each in (*PROVIDERS, "scripted", "recorded"))
            raise InvalidInput(f"model {name!r} is not known; write one of {known}, or a name from POSTROOM_MODELS")
        return self._provider(name, PROVIDERS[kind], rest, spec)

    def _provider(self, name: str, provider: Provider, rest: str, spec: ModelSpec) -> Model:
        upstream, _, given = rest.partition("@") if provider.plain else (rest, "", "")
        base = given or self._environ.get(provider.base_variable, "").strip() or provider.base_url
        _check(name, upstream, base)
        limits = spec.limits(sizes(upstream))
        thinks = effort.thinks(upstream) if spec.reasoning is None else spec.reasoning
        card = Card(_shown(name), upstream, limits, thinks, provider.plain)
        needed = provider.key_needed or spec.key is not None
        address = Address(base, spec.key or provider.key, needed, self._environ)
        model: Model = ProviderModel(card, provider.wire(), address, self.http, self._times, spec.streaming)
        if spec.requests_per_minute or spec.tokens_per_minute:
            model = Limited(model, self.gate, spec.requests_per_minute, spec.tokens_per_minute)
        return Retrying(Breaker(model), self._catalog.retry)

    def _pool(self, name: str, spec: PoolSpec, within: tuple[str, ...]) -> Model:
        policy = PoolPolicy(spec.choose, spec.switch_on, spec.quota_after_s, spec.max_switches)
        members = []
        for each in spec.members:
            model = self._known.get(each.model) or self._make(each.model, within)
            self._known[each.model] = model
            members.append((Member(each.model, each.weight, each.role), model))
        return Pool(name, members, policy)


def _check(name: str, upstream: str, base: str) -> None:
    try:
        parts = urlsplit(base)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not upstream or not usable:
        raise InvalidInput(f"model {_shown(name)!r} has no usable address; write openai-compatible:NAME@http://host/v1")
    if parts.username or parts.password:
        raise InvalidInput(f"model {_shown(name)!r} has a password in its address; keys come from the environment")


def _shown(name: str) -> str:
    """A name as messages and logs may show it: without what may be secret in its address."""
    upstream, mark, address = name.partition("@")
    if not mark or "://" not in address:
        return name
    scheme, _, place = address.partition("://")
    return f"{upstream}@{scheme}://{place.partition('?')[0].rpartition('@')[2]}"


@cache
def default() -> Models:
    """The models of this process, as its environment describes them."""
    return Models()


def resolve(name: str) -> Model:
    """The model of a name, for this process."""
    return default().resolve(name)

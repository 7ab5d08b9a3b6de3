"""What tests of models share: a provider on loopback, and models that talk to it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from postroom.mailbox.settings import Settings
from postroom.worker.model.base import Part, Request
from postroom.worker.model.catalog import catalog
from postroom.worker.model.errors import ModelError
from postroom.worker.model.resolve import Models
from tests.worker.model.provider import Provider

KEY = "sk-test-4f9a1c"
NAMES = {
    "/v1/chat/completions": "openai:m",
    "/v1/responses": "openai-responses:m",
    "/v1/messages": "anthropic:m",
}
Make = Callable[..., Models]


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that answers as it is told to."""
    with Provider() as running:
        yield running


@pytest.fixture
def models(provider: Provider) -> Make:
    """Makes models at that provider; keyword arguments are the catalog and settings in seconds."""

    def make(environ: dict[str, str] | None = None, settings: Settings | None = None, **said: Any) -> Models:
        found = {
            "OPENAI_API_KEY": KEY,
            "ANTHROPIC_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "ANTHROPIC_BASE_URL": provider.url,
        } | (environ or {})
        quick = {"max_retries": 0, "max_stream_retries": 0, "backoff_base_ms": 1, "overloaded_backoff_base_ms": 1}
        return Models(settings or Settings(), catalog({"retry": quick} | said), found)

    return make


def question(text: str = "Hi", **more: Any) -> Request:
    """A request of plain words."""
    return Request(({"role": "user", "content": [{"type": "text", "text": text}]},), **more)


def hear(models: Models, name: str, request: Request | None = None) -> list[Part]:
    """All parts of an answer."""
    return asyncio.run(_hear(models, name, request or question()))


def fail(models: Models, name: str, request: Request | None = None) -> ModelError:
    """The error an answer ends with."""
    with pytest.raises(ModelError) as caught:
        hear(models, name, request)
    return caught.value


async def _hear(models: Models, name: str, request: Request) -> list[Part]:
    try:
        return [part async for part in models.resolve(name).stream(request)]
    finally:
        await models.close()

"""Models by name, and what an operator says about them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.settings import Settings
from postroom.worker.model import resolve as module
from postroom.worker.model.base import Limits
from postroom.worker.model.catalog import SIZES, catalog, read, sizes
from postroom.worker.model.http import Http, Timeouts
from postroom.worker.model.reply import whole
from postroom.worker.model.resolve import Models
from tests.worker.model.conftest import KEY, Make, fail, hear, question
from tests.worker.model.provider import Provider, Reaction
from tests.worker.model.wires import Answer


def test_where_each_provider_is_asked(provider: Provider, models: Make) -> None:
    for name in ("openai:gpt-5", "openai-responses:gpt-5", "anthropic:claude-opus-5"):
        hear(models(), name)
    chat, responses, messages = provider.asked
    assert (chat.path, chat.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert (responses.path, responses.headers["authorization"]) == ("/v1/responses", f"Bearer {KEY}")
    assert (messages.path, messages.headers["x-api-key"]) == ("/v1/messages", KEY)
    assert messages.headers["anthropic-version"] == "2023-06-01"
    assert [each.body["model"] for each in provider.asked] == ["gpt-5", "gpt-5", "claude-opus-5"]


def test_any_server_that_speaks_the_language(provider: Provider, models: Make) -> None:
    name = f"openai-compatible:meta/llama3:8b@{provider.url}/v1/?api-version=2"
    assert whole(hear(models(), name)).text == "Hello"
    asked = provider.asked[0]
    assert (asked.path, asked.body["model"]) == ("/v1/chat/completions?api-version=2", "meta/llama3:8b")
    assert "authorization" not in asked.headers
    hear(models({"OPENAI_COMPATIBLE_API_KEY": "other"}), name)
    assert provider.asked[1].headers["authorization"] == "Bearer other"


def test_names_and_keys_of_ones_own(provider: Provider, models: Make) -> None:
    made = models(
        {"SHOP_KEY": "shop"}, models={"shop": {"model": f"openai-compatible:m@{provider.url}/v1", "key": "SHOP_KEY"}}
    )
    assert whole(hear(made, "shop")).text == "Hello"
    assert provider.asked[0].headers["authorization"] == "Bearer shop"
    unset = models(models={"shop": {"model": f"openai-compatible:m@{provider.url}/v1", "key": "SHOP_KEY"}})
    assert fail(unset, "shop").message == "shop: no key; set SHOP_KEY in the environment of the worker"


def test_a_key_that_cannot_be_one(models: Make) -> None:
    for key in ("sk-ä", "sk\nx: y"):
        error = fail(models({"OPENAI_API_KEY": key}), "openai:m")
        assert error.code == "model_unauthorized"
        assert key not in error.message


@pytest.mark.parametrize(
    "name",
    [
        "gpt-5",
        "openai:",
        "mistral:x",
        "",
        "openai-compatible:m",
        "openai-compatible:@http://host/v1",
        "openai-compatible:m@ftp://host",
        "openai-compatible:m@http://",
        "openai-compatible:m@http://host:99999/v1",
    ],
)
def test_a_name_that_means_nothing_is_one_line(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Models(environ={}).resolve(name)
    assert "\n" not in caught.value.message


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidInput, match="keys come from the environment") as caught:
        Models(environ={}).resolve("openai-compatible:m@http://user:hunter2@host/v1")
    assert "hunter2" not in caught.value.message


def test_the_query_of_an_address_is_not_shown(models: Make, provider: Provider) -> None:
    provider.react(Reaction(status=500, body={}))
    error = fail(models(), f"openai-compatible:m@{provider.url}/v1?token=hunter2")
    assert "hunter2" not in error.message


def test_one_name_is_one_model() -> None:
    made = Models(environ={})
    assert made.resolve("openai:gpt-5") is made.resolve("openai:gpt-5")
    assert made.resolve("openai:gpt-5").name == "openai:gpt-5"
    assert module.resolve("scripted:x") is module.resolve("scripted:x")


def test_what_is_known_beforehand_and_what_the_operator_knows_better() -> None:
    assert sizes("gpt-5.1-codex") == Limits(400_000, 128_000)
    assert sizes("anthropic/claude-haiku-4-5-20251001") == Limits(200_000, 64_000)
    assert sizes("something-new") == Limits()
    assert all(0 < most <= window for window, most in SIZES.values())
    told = catalog({"models": {"openai:gpt-5": {"context_window": 500_000, "input_price": 1.25}}})
    assert Models(Settings(), told, {}).resolve("openai:gpt-5").limits == Limits(500_000, 128_000, 1.25)


GOOD = """
[retry]
max_retries = 4
backoff_base_ms = 100

[models."openai:gpt-5"]
input_price = 1.25
requests_per_minute = 500

[models.house]
model = "openai-compatible:llama@http://127.0.0.1:1/v1"
context_window = 8192

[pools.main]
choose = "round_robin"
members = [{ model = "openai:gpt-5", weight = 3 }, { model = "house", role = "failover_only" }]
"""


def test_the_operators_file(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(GOOD)
    found = read(path)
    assert (found.retry.max_retries, found.retry.base) == (4, 0.1)
    made = Models(Settings(models=path), environ={})
    assert made.resolve("main").limits.context_window == 8192


BAD: list[tuple[dict[str, Any], str]] = [
    ({"models": {"a": {"context_window": 0}}}, "models.a.context_window"),
    ({"models": {"a": {"context_window": 10, "max_output_tokens": 11}}}, "more than the context_window can hold"),
    ({"models": {"a": {"input_price": -1.0}}}, "models.a.input_price"),
    ({"models": {"a": {"input_price": float("inf")}}}, "models.a.input_price"),
    ({"models": {"a": {"prize": 1}}}, "models.a.prize"),
    ({"models": {"a": {"key": "not a name"}}}, "models.a.key"),
    ({"models": {"a": {}}, "pools": {"a": {"members": [{"model": "b"}]}}}, "'a' is the name of a model and of a pool"),
    ({"pools": {"a": {"members": []}}}, "pools.a.members"),
    ({"pools": {"a": {"members": [{"model": "b", "weight": 0}]}}}, "pools.a.members.0.weight"),
]


@pytest.mark.parametrize(("data", "told"), BAD)
def test_mistakes_in_it_are_told_by_place(data: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        catalog(data)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[oops")
    for name, why in (("bad.toml", "is not TOML"), ("no.toml", "No such file")):
        with pytest.raises(InvalidInput, match=why):
            read(tmp_path / name)


def test_a_pool_cannot_hold_itself() -> None:
    told = catalog({"pools": {"a": {"members": [{"model": "b"}]}, "b": {"members": [{"model": "a"}]}}})
    with pytest.raises(InvalidInput, match="a → b → a"):
        Models(Settings(), told, {}).resolve("a")


def test_failover_between_providers(provider: Provider, models: Make) -> None:
    provider.react(Reaction(status=529, body={}), Answer(("from the other",)))
    members = [{"model": "openai:m"}, {"model": "anthropic:m", "role": "failover_only"}]
    assert whole(hear(models(pools={"main": {"members": members}}), "main")).text == "from the other"
    assert [each.path for each in provider.asked] == ["/v1/chat/completions", "/v1/messages"]


def test_a_breaker_is_shared_by_all_who_ask(provider: Provider, models: Make) -> None:
    provider.react(*(Reaction(status=500, body={}) for _ in range(5)))
    made = models()
    codes = [fail(made, "openai:m").code for _ in range(6)]
    assert codes == ["model_provider_failed"] * 5 + ["model_circuit_open"]
    assert len(provider.asked) == 5


def test_timeouts_come_from_the_settings() -> None:
    found = Timeouts.of(Settings(model_connect_ms=1, model_first_token_ms=2, model_idle_ms=3, model_total_ms=4))
    assert found == Timeouts(0.001, 0.002, 0.003, 0.004)
    assert found.patient() == Timeouts(0.001, 0.004, 0.006, 0.004)


def test_http2_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(InvalidInput, match=r"postroom\[http2\]"):
        Models(Settings(model_http2=True), environ={})


def test_one_client_for_all(provider: Provider, models: Make) -> None:
    async def check() -> None:
        http = Http()
        assert http.client() is http.client()
        await http.close()

    asyncio.run(check())
    made = models()

    async def ask() -> None:
        for name in ("openai:m", "anthropic:m"):
            async for _ in made.resolve(name).stream(question()):
                pass
        await made.close()

    asyncio.run(ask())
    assert provider.connections == 1

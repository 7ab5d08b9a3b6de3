"""Settings: read once from the environment, each mistake named, each variable documented."""

from dataclasses import fields
from pathlib import Path

import pytest

from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.settings import Settings, variable


def test_defaults_need_no_environment() -> None:
    assert Settings.from_env({}) == Settings()


def test_variables_and_overrides() -> None:
    found = Settings.from_env({"POSTROOM_LEASE_MS": "500", "POSTROOM_DATA_DIR": "/x"}, max_lane=3, redis_url=None)
    assert (found.lease_ms, found.data_dir, found.max_lane, found.redis_url) == (500, Path("/x"), 3, None)
    assert Settings.from_env({"POSTROOM_REDIS_URL": ""}).redis_url is None


@pytest.mark.parametrize("text", ["ten", "0", "-5", "1.5"])
def test_an_unusable_value_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput, match="POSTROOM_LEASE_MS"):
        Settings.from_env({"POSTROOM_LEASE_MS": text})


@pytest.mark.parametrize("wrong", [{"lease_ms": -5}, {"run_retention_ms": 10**19}, {"max_body_bytes": 1 << 40}])
def test_a_value_given_in_code_is_checked_too(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="POSTROOM_"):
        Settings(**wrong)  # type: ignore[arg-type]


def test_every_variable_stands_in_the_readme() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    missing = [variable(item.name) for item in fields(Settings) if f"`{variable(item.name)}`" not in readme]
    assert missing == []

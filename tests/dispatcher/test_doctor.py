"""The doctor: each thing that can be wrong is found, and none hides the others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.dispatcher import Dispatcher
from postroom.dispatcher.doctor import Finding, examine
from postroom.mailbox import fleet, ops
from postroom.mailbox.connect import dial
from postroom.mailbox.server import start
from postroom.mailbox.settings import Settings


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A server of the test's own: it is set up wrongly."""
    with start(Settings(data_dir=tmp_path)) as server:
        yield server.url


def found(url: str) -> dict[str, Finding]:
    return {each.what: each for each in examine(url, Settings())}


def configured(url: str, **options: Any) -> None:
    with dial(url) as client:
        for name, value in options.items():
            client.config_set(name.replace("_", "-"), value)


def test_version_role_and_policy_are_findings_of_their_own(url: str) -> None:
    findings = found(url)
    assert all(findings[what].mark == "ok " for what in ("version", "role", "policy", "memory", "persistence"))


def test_a_wrong_policy_stops_no_other_check(url: str) -> None:
    configured(url, maxmemory_policy="allkeys-lru", appendonly="no")
    findings = found(url)
    assert findings["policy"].mark == findings["persistence"].mark == "BAD"
    assert "set maxmemory-policy noeviction" in findings["policy"].words
    assert findings["version"].well


def test_queues_that_nobody_takes_from(url: str) -> None:
    with Dispatcher(url) as client:
        ops.run_all(client.client, fleet.beat("w", {"queues": "default,slow"}, 60_000))
        client.submit("clerk", "x", queue="slow")
        assert found(url)["queues"].well
        client.submit("clerk", "x", queue="high")
    queues = found(url)["queues"]
    assert not queues.well
    assert queues.words.endswith("no live worker takes from high; start one: postroom worker --queues high")


def test_memory_that_runs_out(url: str) -> None:
    assert found(url)["memory"].mark == "ok "
    with dial(url) as client:
        used = client.info("memory")["used_memory"]
    configured(url, maxmemory=int(used * 1.06))
    assert found(url)["memory"].mark == "NB "
    configured(url, maxmemory=1)
    assert found(url)["memory"].mark == "BAD"
    assert "every write is refused" in found(url)["memory"].words

"""Servers and fleets for tests with real processes."""

import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.worker.fleet import Fleet, FleetOn, Server, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, to be stopped and started."""
    home = tmp_path / "server"
    home.mkdir()
    with Server(home) as server:
        yield server


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Lets a fixture know that its test has failed."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture
def fleet(server_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """A fleet with short leases, no process started yet."""
    with running(server_url, tmp_path) as fleet:
        yield fleet
        if request.node.stash.get(FAILED, False):
            sys.stderr.write(fleet.show())


@pytest.fixture
def fleet_on(tmp_path: Path) -> FleetOn:
    """A fleet on a server of your choice, with settings of your choice."""
    return lambda url, **settings: running(url, tmp_path, **settings)

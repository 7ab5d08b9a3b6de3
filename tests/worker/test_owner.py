"""Processes that share an embedded server: who may own one, and what becomes of the others when its owner leaves."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.dispatcher import Dispatcher
from postroom.mailbox.contracts import RunRecord
from postroom.mailbox.server import attach, start
from postroom.mailbox.settings import Settings
from postroom.worker.cli import main
from tests.waiting import until
from tests.worker.fleet import Child, Fleet, running

SLOW = [{"sleep": 1, "say": "one"}, "two"]
GONE = "has gone with its owner; start this again"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def shared(tmp_path: Path, data: Path) -> Iterator[Fleet]:
    """A fleet without a URL: whoever comes first owns the server, and here that is a dispatcher."""
    with start(Settings(data_dir=data)) as server:
        fleet = running(server.url, tmp_path)
        made = fleet.__enter__()
    made.place = ["--data-dir", str(data)]
    try:
        owner = made.start("dispatcher", title="owner")
        until(lambda: "standing by" in owner.said(), 20, "the owner is up")
        made.url = attach(Settings(data_dir=data)).url
        made.reconnect()
        yield made
    finally:
        sys.stderr.write(made.show())
        fleet.__exit__(None, None, None)


def owner_of(fleet: Fleet) -> Child:
    return fleet.children[0]


def found_later(data: Path, run_id: str) -> RunRecord:
    """The run as the next server of the directory has it."""
    with start(Settings(data_dir=data)) as server, Dispatcher(server.url) as client:
        return client.get_run(run_id)


@pytest.mark.parametrize("words", [["submit", "clerk", "x"], ["tail", "r"], ["runs"], ["doctor"], ["agents", "list"]])
def test_a_command_that_ends_soon_owns_no_server(
    data: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main([*words, "--data-dir", str(data)]) == 2
    line = f"postroom: no server runs in {data}; start one with `postroom up`, or set POSTROOM_REDIS_URL\n"
    assert capsys.readouterr() == ("", line)
    assert not data.exists()


def test_a_command_finds_the_server_that_runs(data: Path) -> None:
    with start(Settings(data_dir=data)) as server:
        assert main(["submit", "clerk", "x", "--data-dir", str(data)]) == 0
        with Dispatcher(server.url) as client:
            assert client.stats().runs == 1


def test_an_owner_stops_the_server_only_after_its_guests_have_drained(shared: Fleet, data: Path) -> None:
    worker = shared.supervised(2)
    run = shared.submit(SLOW)
    shared.held(run)
    for child in (owner_of(shared), worker):  # as honcho does
        child.signal(signal.SIGTERM)
    assert (owner_of(shared).exit_code(20), worker.exit_code(20)) == (0, 0)
    record = found_later(data, run.run_id)
    assert (record.status.value, record.attempts, record.step) == ("queued", 0, 1), "given back, uncharged"


def test_guests_drain_when_their_owner_leaves_and_say_why(shared: Fleet, data: Path) -> None:
    worker = shared.worker()
    run = shared.submit(SLOW)
    shared.held(run)
    assert owner_of(shared).stop(20) == 0
    assert worker.exit_code(5) == 2
    assert GONE in worker.said()
    record = found_later(data, run.run_id)
    assert (record.status.value, record.attempts, record.step) == ("queued", 0, 1), "given back, uncharged"


def test_guests_leave_when_their_owner_was_killed(shared: Fleet) -> None:
    guests = [shared.supervised(1, verb="up"), shared.worker(), shared.start("dispatcher", title="guest")]
    until(lambda: "standing by" in guests[-1].said(), 20, "all are up")
    owner_of(shared).kill()
    for guest in guests:
        assert guest.exit_code(30) == 2, guest.title
        assert GONE in guest.said()
        assert "Traceback" not in guest.said()

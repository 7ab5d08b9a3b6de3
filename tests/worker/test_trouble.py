"""Commands in trouble: a server that refuses or goes away, a user in a hurry: one line or none, never a traceback."""

import signal
import subprocess
import sys

import pytest

from postroom.mailbox.connect import dial
from postroom.worker.cli import main
from tests.waiting import until
from tests.worker.fleet import FleetOn, Server

SUBMIT = ("submit", "clerk", "hello")
# A real Ctrl-C, at the very moment when the command has begun to be imported.
AT_IMPORT = """
import os, signal, sys

class Impatient:
    def find_spec(self, name, *_):
        if name == "postroom.worker":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Impatient())
from postroom.mailbox.entry import main
main()
"""


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a command fails with."""
    assert main([*words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err.removeprefix("postroom: ")


def test_a_full_server(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with dial(server.url) as client:
        client.config_set("maxmemory", 1)
    assert "is full and takes no writes" in told(capsys, *SUBMIT, "--url", server.url)


def test_a_user_without_rights(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with dial(server.url) as client:
        client.execute_command("ACL", "SETUSER", "low", "on", ">pw", "+info", "+@connection")
    low = server.url.replace("//", "//low:pw@")
    for words in (SUBMIT, ("stats",)):
        line = told(capsys, *words, "--url", low)
        assert f"the server at {server.url} denied this user a command" in line


def test_a_server_that_goes_away_during_tail(server: Server, fleet_on: FleetOn) -> None:
    with fleet_on(server.url) as fleet:
        run = fleet.submit([])
        tail = fleet.start("tail", run.run_id, title="tail")
        until(lambda: any(each["cmd"] == "xread" for each in fleet.client.client_list()), 20, "it follows the run")
        server.kill()
        assert tail.exit_code() == 2
        (line,) = (line for line in tail.said().splitlines() if not line.startswith("·"))
        assert line.startswith(f"postroom: the server at {server.url} cannot be reached")


def test_ctrl_c_in_the_first_moments() -> None:
    done = subprocess.run([sys.executable, "-c", AT_IMPORT, "stats"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")

"""The Procfile as it is, under honcho: it comes up, serves a run, and stops when told to."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import until
from tests.worker.fleet import APP, ROOT, FleetOn, Server


def test_the_procfile_runs_a_fleet(server: Server, fleet_on: FleetOn, tmp_path: Path) -> None:
    with fleet_on(server.url) as fleet:
        fleet.queue = "default"
        own = {"POSTROOM_REDIS_URL": server.url, "POSTROOM_APP": APP, "PYTHONUNBUFFERED": "1"}
        environ = fleet.environ | own | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        told = tmp_path / "honcho.log"
        with told.open("wb") as out:
            files = ["-f", str(ROOT / "Procfile"), "-d", str(ROOT)]
            command = [sys.executable, "-m", "honcho", "--no-colour", *files, "start"]
            honcho = subprocess.Popen(command, env=environ, stdout=out, stderr=out, start_new_session=True)
        try:
            until(lambda: len(fleet.alive()) == 2, 30, "two workers are up")
            run = fleet.submit([{"sleep": 0.1, "say": "one"}, "two"])
            until(lambda: fleet.all_done([run]), 15, "the run is done")
            pids = list(fleet.alive().values())
            slow = fleet.submit([{"sleep": 0.5, "say": "one"}, "two"])
            fleet.held(slow)
            honcho.send_signal(signal.SIGTERM)
            assert honcho.wait(20) in (0, 128 + signal.SIGTERM), told.read_text()
            assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
            assert "Traceback" not in told.read_text()
            assert "SIGKILL" not in told.read_text(), "everybody left when asked"
            record = fleet.run(slow)
            assert (record.status.value, record.attempts, record.step) == ("queued", 0, 1), "given back, uncharged"
        finally:
            honcho.kill()
            honcho.wait()

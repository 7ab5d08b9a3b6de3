"""The checks at connect: pure on what INFO says, and against real servers set up wrongly."""

import asyncio
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as Lost

from postroom.mailbox.binary import find_binary
from postroom.mailbox.connect import address, connect, connect_async, dial, problem
from postroom.mailbox.errors import (
    InvalidInput,
    PostroomError,
    ServerEvicts,
    ServerReadOnly,
    ServerTooOld,
    ServerUnreachable,
)
from tests.waiting import until

GOOD = {"redis_version": "7.2.4", "valkey_version": "9.1.2", "role": "master", "maxmemory_policy": "noeviction"}
SECRET = "s3cret"

Serve = Callable[..., str]


def connect_in_loop(url: str, answer_s: float = 5.0) -> None:
    async def main() -> None:
        async with await connect_async(url, answer_s=answer_s) as client:
            await client.ping()

    asyncio.run(main())


def connect_here(url: str, answer_s: float = 5.0) -> None:
    with connect(url, answer_s=answer_s) as client:
        client.ping()


both = pytest.mark.parametrize("join", [connect_here, connect_in_loop], ids=["sync", "async"])
Join = Callable[..., None]


def refusal(kind: type[PostroomError], join: Join, url: str, **options: float) -> str:
    with pytest.raises(kind) as caught:
        join(url, **options)
    assert "\n" not in caught.value.message
    assert SECRET not in caught.value.message
    return caught.value.message


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Starts a server with options of the test's choice; a socket file, unlike a port, cannot be anyone else's."""
    with ExitStack() as stack:

        def run(*options: str) -> str:
            home = tmp_path_factory.mktemp("s")
            process = subprocess.Popen(
                [find_binary(), "--port", "0", "--unixsocket", "s", "--save", "", *options],
                cwd=home,
                stdout=subprocess.DEVNULL,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            until(lambda: listening(home / "s"), 10, "the server is up")
            return f"unix://{home / 's'}"

        yield run


def listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture(scope="module")
def guarded(serve: Serve) -> str:
    return serve("--requirepass", SECRET)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({}, None),
        ({"redis_version": "7.0.0"}, None),
        ({"redis_version": "10.0.1"}, None),
        ({"redis_version": "6.2.14"}, ServerTooOld),
        ({"redis_version": 6.2}, ServerTooOld),
        ({"redis_version": "unstable"}, ServerTooOld),
        ({"role": "slave"}, ServerReadOnly),
        ({"role": "sentinel"}, ServerReadOnly),
        ({"maxmemory_policy": "allkeys-lru"}, ServerEvicts),
        ({"maxmemory_policy": "volatile-ttl"}, ServerEvicts),
    ],
)
def test_problem(said: dict[str, object], kind: type[PostroomError] | None) -> None:
    found = problem(GOOD | said, "redis://h:1/0")
    assert type(found) is (kind or type(None))
    if found is not None:
        assert "redis://h:1/0" in found.message
        assert str(next(iter(said.values()))) in found.message


@pytest.mark.parametrize("unsaid", ["redis_version", "role", "maxmemory_policy"])
def test_what_a_server_leaves_unsaid_counts_against_it(unsaid: str) -> None:
    assert problem({field: value for field, value in GOOD.items() if field != unsaid}, "here") is not None


@both
def test_a_good_server_is_taken(join: Join, server_url: str) -> None:
    join(server_url)


@both
def test_a_server_that_evicts_is_refused(join: Join, serve: Serve) -> None:
    url = serve("--maxmemory-policy", "allkeys-lru")
    message = refusal(ServerEvicts, join, url)
    assert "allkeys-lru" in message
    assert address(url) in message


def test_a_server_that_forbids_config_is_judged_all_the_same(serve: Serve) -> None:
    url = serve("--rename-command", "CONFIG", "", "--maxmemory-policy", "allkeys-lru")
    refusal(ServerEvicts, connect_here, url)


@both
def test_a_replica_is_refused(join: Join, serve: Serve, server_url: str) -> None:
    port = server_url.rpartition(":")[2].partition("/")[0]
    refusal(ServerReadOnly, join, serve("--replicaof", f"127.0.0.1 {port}"))


@both
def test_a_port_where_nobody_listens_is_one_line(join: Join) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{unheard.getsockname()[1]}"
        message = refusal(ServerUnreachable, join, f"redis://me:{SECRET}@{place}/3?password={SECRET}")
    assert f"redis://{place}/3 cannot be reached" in message


@both
def test_a_server_that_never_answers_is_given_up(join: Join) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        assert "did not answer in time" in refusal(ServerUnreachable, join, url, answer_s=0.1)


@both
def test_something_that_is_no_redis_is_one_line(join: Join) -> None:
    def reply(listener: socket.socket) -> None:
        caller, _ = listener.accept()
        with caller:
            caller.recv(4096)
            caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=reply, args=(listener,))
        thread.start()
        refusal(ServerUnreachable, join, f"redis://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


@both
@pytest.mark.parametrize("login", ["", ":wrong@", "nobody:wrong@"])
def test_a_wrong_login_is_one_line(join: Join, guarded: str, login: str) -> None:
    url = guarded.replace("unix://", f"unix://{login}")
    message = refusal(ServerUnreachable, join, url)
    assert "refused the login" in message
    assert "wrong" not in message


@both
def test_the_right_password_is_taken(join: Join, guarded: str) -> None:
    join(guarded.replace("unix://", f"unix://:{SECRET}@"))


def test_a_user_without_the_right_to_ask_is_one_line(guarded: str) -> None:
    with connect(guarded.replace("unix://", f"unix://:{SECRET}@")) as client:
        client.execute_command("ACL", "SETUSER", "low", "on", f">{SECRET}", "+ping")
    url = guarded.replace("unix://", f"unix://low:{SECRET}@")
    assert "denied this user a command" in refusal(ServerUnreachable, connect_here, url)


@both
@pytest.mark.parametrize(
    "url",
    [
        "",
        SECRET,
        "localhost:6379",
        f"http://:{SECRET}@localhost",
        f"redis://:{SECRET}@localhost:port",
        f"redis://:{SECRET}@localhost:99999",
        f"redis://:{SECRET}@localhost/zero",
        f"redis://:x/{SECRET}@localhost",
        f"redis://:1#{SECRET}@localhost",
        f"redis://u:1?{SECRET}@localhost",
        f"redis://[{SECRET}",
        f"redis://localhost?db={SECRET}",
        f"redis://localhost?{SECRET}=1",
        "redis://localhost?socket_timeout=5",
        "redis://localhost?protocol=3",
        "redis://localhost?decode_responses=1",
    ],
)
def test_a_url_that_is_none_is_refused(join: Join, url: str) -> None:
    assert "redis://host:6379/0" in refusal(InvalidInput, join, url)


@both
def test_a_host_name_that_cannot_be_one_is_one_line(join: Join) -> None:
    refusal(ServerUnreachable, join, f"redis://{'x' * 70}.invalid")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:pw@host:1/2?password=pw", "redis://host:1/2"),
        ("rediss://:p%40w@[::1]:1", "rediss://[::1]:1"),
        ("unix://:pw@/run/redis.sock?db=1", "unix:///run/redis.sock"),
    ],
)
def test_address_shows_no_secret(url: str, shown: str) -> None:
    assert address(url) == shown


def test_a_blocking_read_outlasts_the_answer_time(server_url: str) -> None:
    with connect(server_url, answer_s=0.1) as client:
        assert client.blpop(["postroom-test:nothing"], timeout=0.3) is None


def test_nothing_is_sent_twice() -> None:
    """A server that takes a command and hangs up: a client that retries would come back with the same command."""
    received: list[bytes] = []

    def hang_up(listener: socket.socket) -> None:
        while True:
            caller, _ = listener.accept()
            with caller:
                while b"XADD" not in (heard := caller.recv(4096)) and heard:
                    caller.sendall(b"+OK\r\n" * heard.count(b"*"))
                received.append(heard)
                if b"stop" in heard:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=hang_up, args=(listener,))
        thread.start()
        with dial(f"redis://127.0.0.1:{listener.getsockname()[1]}", timeout=2) as client:
            for value in ("once", "stop"):
                with pytest.raises(Lost):
                    client.xadd("k", {"v": value})
        thread.join()
    assert [b"once" in heard for heard in received] == [True, False]

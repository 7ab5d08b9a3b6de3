"""RQ's view of a doorbell: what the scripts write, RQ reads; what RQ writes, workers take."""

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError
from rq import Queue
from rq.job import Job
from rq.registry import FailedJobRegistry, StartedJobRegistry
from rq.serializers import JSONSerializer
from rq.worker import Worker as RqWorker

from postroom.dispatcher import Dispatcher, functions
from postroom.mailbox import keys, ops
from postroom.mailbox.connect import connect
from postroom.mailbox.errors import BodyTooLarge, InvalidInput
from postroom.mailbox.scripts import JOB
from postroom.mailbox.settings import Settings
from tests.waiting import until

ROOT = Path(__file__).parents[2]
APP = "tests.worker.echo_app:app"
URL = "https://shop.example/hook"


@pytest.fixture
def plain(server_url: str) -> Iterator[Any]:
    made = connect(server_url)
    yield made
    made.close()


@pytest.fixture
def client(server_url: str) -> Iterator[Dispatcher]:
    with Dispatcher(server_url) as made:
        yield made


@pytest.fixture
def queue() -> str:
    return f"q-{uuid.uuid4().hex[:8]}"


def environment(url: str) -> dict[str, str]:
    return os.environ | {"POSTROOM_REDIS_URL": url, "POSTROOM_APP": APP, "PYTHONPATH": str(ROOT)}


@contextmanager
def worker(url: str, queue: str, *more: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "postroom.worker", "worker", "--app", APP, "--queues", queue, "--url", url, *more]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(url))
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def test_rq_reads_our_doorbell_as_if_it_had_written_it(client: Dispatcher, plain: Any, queue: str) -> None:
    thread = 'a "quoted" thread, ünïcode \\ and all'
    run_id = client.submit("echo", "hi", thread=thread + queue, queue=queue).run_id
    rq_queue = Queue(queue, connection=plain, serializer=JSONSerializer)
    (ours,) = rq_queue.jobs
    rung = rq_queue.enqueue(JOB, thread + queue, run_id, result_ttl=0, failure_ttl=86400, job_timeout=-1)
    theirs = Job.fetch(rung.id, connection=plain, serializer=JSONSerializer)
    for name in ("func_name", "args", "kwargs", "origin", "timeout", "result_ttl", "failure_ttl"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.get_status() == theirs.get_status()
    assert ours.created_at is not None
    assert theirs.created_at is not None
    assert abs((theirs.created_at - ours.created_at).total_seconds()) < 60
    assert ours.id == f"{run_id}-1"
    written = set(plain.hgetall(f"rq:job:{ours.id}"))
    assert written <= set(plain.hgetall(f"rq:job:{theirs.id}"))
    assert queue in [each.name for each in Queue.all(connection=plain)]


@pytest.mark.parametrize("day", ["1970-01-01", "2000-02-29", "2026-12-31", "2100-03-01"])
def test_times_are_written_as_rq_writes_them(plain: Any, day: str) -> None:
    from datetime import UTC, datetime

    from postroom.mailbox import lane
    from postroom.mailbox.contracts import RunRequest

    moment = datetime.fromisoformat(f"{day}T23:59:58.123+00:00")
    run_id = uuid.uuid4().hex
    request = RunRequest(run_id=run_id, thread_id=run_id, queue=f"q-{run_id[:6]}")
    ops.run(plain, lane.submit(request, Settings(), int(moment.timestamp() * 1000) or 1))
    job = Job.fetch(f"{run_id}-1", connection=plain, serializer=JSONSerializer)
    assert job.created_at == moment
    assert job.created_at.tzinfo is not None
    assert UTC


def test_a_fleet_worker_is_an_rq_worker_to_rq(client: Dispatcher, plain: Any, queue: str, server_url: str) -> None:
    with worker(server_url, queue):
        run_id = client.submit("echo", "x", queue=queue, metadata={"script": [{"sleep": 60, "say": "late"}]}).run_id
        registry = StartedJobRegistry(queue, connection=plain, serializer=JSONSerializer)
        until(lambda: registry.get_job_ids(cleanup=False) == [f"{run_id}-1"], 15, "the job counts as started")
        rq_queue = Queue(queue, connection=plain, serializer=JSONSerializer)
        (seen,) = RqWorker.all(connection=plain, queue=rq_queue)
        until(lambda: plain.hget(f"rq:worker:{seen.name}", "state") == b"busy", 15, "the worker says it is busy")
        job = Job.fetch(f"{run_id}-1", connection=plain, serializer=JSONSerializer)
        assert (job.get_status(), job.worker_name) == ("started", seen.name)
        info = subprocess.run(
            [sys.executable, "-m", "rq.cli", "info", "--url", server_url, queue],
            capture_output=True,
            text=True,
            check=True,
        )
        assert seen.name in info.stdout
        client.cancel(run_id)
        assert client.wait(run_id, 10).termination is not None
        until(lambda: registry.get_job_ids(cleanup=False) == [], 15, "nothing counts as started")
        until(lambda: not plain.exists(f"rq:job:{run_id}-1"), 15, "the job is gone")
        assert int(plain.hget(f"rq:worker:{seen.name}", "successful_job_count")) == 1
    assert RqWorker.all(connection=plain, queue=rq_queue) == []


def test_the_stock_rq_worker_serves_our_doorbells(client: Dispatcher, queue: str, server_url: str) -> None:
    runs = [client.submit("echo", f"words {i}", queue=queue).run_id for i in range(3)]
    command = [sys.executable, "-m", "rq.cli", "worker", "--url", server_url, "--burst", queue]
    command += ["--serializer", "rq.serializers.JSONSerializer", "--quiet"]
    subprocess.run(command, cwd=ROOT, env=environment(server_url), check=True, timeout=60)
    for run_id in runs:
        assert client.get_run(run_id).status == "done"


def test_a_plain_rq_enqueue_rings_for_a_submitted_run(
    client: Dispatcher, plain: Any, queue: str, server_url: str
) -> None:
    done = client.submit("echo", "hello", queue="nobody-" + queue)
    thread = client.get_run(done.run_id).thread_id
    Queue(queue, connection=plain, serializer=JSONSerializer).enqueue(JOB, thread, done.run_id, result_ttl=0)
    with worker(server_url, queue):
        assert client.wait(done.run_id, 15).status == "done"


def test_the_plain_rq_of_the_manual_rings(plain: Any, server_url: str) -> None:
    manual = (ROOT / "docs" / "enqueue.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"^```python\n(from redis .*?)^```", manual, re.DOTALL | re.MULTILINE)
    before = set(Queue("default", connection=plain, serializer=JSONSerializer).job_ids)
    exec(compile(snippet.replace("redis://localhost:6379/0", server_url), "enqueue.md", "exec"), {})
    queue = Queue("default", connection=plain, serializer=JSONSerializer)
    (rung,) = set(queue.job_ids) - before
    job = Job.fetch(rung, connection=plain, serializer=JSONSerializer)
    assert (job.func_name, job.args) == (JOB, ["order 7", "my-run-1"])
    job.delete()


def test_a_worker_runs_nothing_but_its_handlers(plain: Any, queue: str, server_url: str, tmp_path: Path) -> None:
    marker = tmp_path / "pwned"
    job = Queue(queue, connection=plain, serializer=JSONSerializer).enqueue("os.system", f"touch {marker}")
    broken = Queue(queue, connection=plain, serializer=JSONSerializer).enqueue(JOB, "too", "many", "arguments", "here")
    with worker(server_url, queue):
        registry = FailedJobRegistry(queue, connection=plain, serializer=JSONSerializer)
        until(lambda: job.id in registry.get_job_ids(cleanup=False), 15, "the foreign job has failed")
        until(lambda: broken.id in registry.get_job_ids(cleanup=False), 15, "the broken job has failed")
    assert not marker.exists()


@pytest.mark.skipif(not shutil.which("redis-cli") and "CI" not in os.environ, reason="no redis-cli on this machine")
def test_redis_cli_submits_and_cancels(client: Dispatcher, plain: Any, queue: str, server_url: str) -> None:
    ops.run(plain, functions.install(client.settings))

    def cli(*words: str) -> list[str]:
        command = ["redis-cli", "-u", server_url, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    thread = f"order {queue}"
    key = f"postroom:{{{thread}}}:thread"
    assert cli("FCALL", "postroom_submit", "1", key, "echo", "né?", "run", f"a-{queue}", "queue", queue)[:2] == [
        "queued",
        f"a-{queue}",
    ]
    assert cli("FCALL", "postroom_submit", "1", key, "echo", "x", "run", f"a-{queue}")[0] == "again"
    second = cli("FCALL", "postroom_submit", "1", key, "echo", "x", "key", "k 1", "priority", "3")[1]
    assert client.get_run(second).idempotency_key == "k 1"
    assert cli("FCALL", "postroom_cancel", "1", key, second)[0] == "cancelled"
    for wrong in (["echo"], ["a b", "x"], ["echo", "x", "colour", "red"], ["echo", "x", "priority", "999"]):
        assert "ERR" in cli("FCALL", "postroom_submit", "1", key, *wrong)[0]
    for reserved in ("mail-1", "call-1"):
        assert "neither mail- nor call-" in cli("FCALL", "postroom_submit", "1", key, "echo", "x", "run", reserved)[0]
    late = ["start_at", "9999999999999", "on_busy", "interrupt"]
    assert "only be enqueued" in cli("FCALL", "postroom_submit", "1", key, "echo", "x", *late)[0]
    assert "ERR" in cli("FCALL", "postroom_submit", "1", "other:key", "echo", "x")[0]
    with worker(server_url, queue):
        assert client.wait(f"a-{queue}", 15).status == "done"
    assert [entry.message["content"][0]["text"] for entry in client.messages(thread)] == ["né?", "né?"]


def test_the_functions_are_what_the_documentation_says(plain: Any, client: Dispatcher) -> None:
    ops.run(plain, functions.install(client.settings))
    manual = (ROOT / "docs" / "enqueue.md").read_text(encoding="utf-8")
    for name in ("postroom_submit", "postroom_cancel"):
        assert f"FCALL {name}" in manual
    key = f"postroom:{{{uuid.uuid4().hex}}}:thread"
    outcome = plain.execute_command(
        "FCALL", "postroom_submit", 1, key, "echo", "hello", "queue", "nobody", "webhook", URL
    )
    assert outcome[0] == b"queued"
    for wrong in ("ftp://shop.example", "https://user:hush@shop.example"):
        with pytest.raises(ResponseError, match="webhook"):
            plain.execute_command("FCALL", "postroom_submit", 1, key, "echo", "x", "webhook", wrong)
    record = client.get_run(outcome[1].decode())
    assert record.webhook == URL
    assert record.request["messages"][0]["content"][0] == {"type": "text", "text": "hello"}


@pytest.mark.parametrize(
    ("thread", "words"),
    [
        (b"\xff", [b"echo", b"x"]),
        (b"t" * 257, [b"echo", b"x"]),
        (b"a\xc2\x85b", [b"echo", b"x"]),
        (b"a\xe2\x80\xa8b", [b"echo", b"x"]),
        (b"a\xed\xa0\x80b", [b"echo", b"x"]),
        (b"fine", [b"echo", b"caf\xe9"]),
        (b"fine", [b"echo", b"x", b"tenant", b"caf\xe9"]),
        (b"fine", [b"echo", b"x", b"key", b"k{1}"]),
        (b"fine", [b"echo", b"x", b"priority", b"nan"]),
        (b"fine", [b"echo", b"x", b"deadline", b"nan"]),
        (b"fine", [b"echo", b"x", b"start_at", b"inf"]),
        (b"fine", [b"echo", b"x", b"start_at", b"0x10"]),
        (b"fine", [b"e" * 129, b"x"]),
    ],
)
def test_what_the_client_would_refuse_the_function_refuses(
    plain: Any, client: Dispatcher, thread: bytes, words: list[bytes]
) -> None:
    ops.run(plain, functions.install(client.settings))
    run = f"r-{uuid.uuid4().hex}"
    thread = thread if thread != b"fine" else uuid.uuid4().hex.encode()
    with pytest.raises(ResponseError, match=r"^(?!.*script)"):
        plain.execute_command(
            "FCALL", "postroom_submit", 1, b"postroom:{%b}:thread" % thread, *words, "run", run, "queue", "nobody"
        )
    assert not plain.exists(f"postroom:run:{run}")
    assert not plain.exists(b"postroom:{%b}:thread" % thread)
    assert plain.zscore(keys.WATCH, thread) is None


def call(plain: Any, thread: str, words: str = "x", **options: Any) -> Any:
    flat = [part for pair in options.items() for part in pair]
    key = keys.thread(thread)
    return plain.execute_command("FCALL", "postroom_submit", 1, key, "echo", words, "queue", "nobody", *flat)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"run_id": "mail-1"}, {"run": "mail-1"}),
        ({"run_id": "call-1"}, {"run": "call-1"}),
        ({"run_id": ""}, {"run": ""}),
        ({"idempotency_key": ""}, {"key": ""}),
        ({"start_at": 10**13 + 1}, {"start_at": 10**13 + 1}),
        ({"deadline": 10**13 + 1}, {"deadline": 10**13 + 1}),
        ({"start_at": 10**13, "on_busy": "interrupt"}, {"start_at": 10**13, "on_busy": "interrupt"}),
        ({"start_at": 10**13, "on_busy": "reject"}, {"start_at": 10**13, "on_busy": "reject"}),
    ],
)
def test_the_function_refuses_what_the_client_refuses(
    plain: Any, client: Dispatcher, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    ops.run(plain, functions.install(client.settings))
    thread = uuid.uuid4().hex
    with pytest.raises(InvalidInput):
        client.submit("echo", "x", thread=thread, queue="nobody", **ours)
    with pytest.raises(ResponseError, match=r"^(?!.*script)"):
        call(plain, thread, **theirs)
    assert not plain.exists(keys.thread(thread))


def test_the_latest_time_is_accepted(plain: Any, client: Dispatcher) -> None:
    ops.run(plain, functions.install(client.settings))
    outcome = call(plain, uuid.uuid4().hex, start_at=10**13, deadline=10**13)
    record = client.get_run(outcome[1].decode())
    assert (outcome[0], record.start_at, record.deadline) == (b"delayed", 10**13, 10**13)


def test_the_function_keeps_to_the_limit_of_bodies(plain: Any, server_url: str) -> None:
    settings = Settings(redis_url=server_url, max_body_bytes=2_000)
    ops.run(plain, functions.install(settings))
    thread, longest = uuid.uuid4().hex, 2_000
    with Dispatcher(server_url, settings=settings) as client:
        while True:
            try:
                client.submit("echo", "x" * longest, thread=thread, queue="nobody")
            except BodyTooLarge:
                longest -= 1
            else:
                break
    assert call(plain, thread, "x" * longest)[0] == b"queued"
    with pytest.raises(ResponseError, match="the limit is 2000"):
        call(plain, thread, "x" * (longest + 1))


@pytest.mark.parametrize(
    ("url", "accepted"),
    [
        (URL, True),
        ("HTTPS://shop.example:8443/hook?to=a@b&x", True),
        ("http://localhost", True),
        ("http://shop.example:/hook", True),
        ("http://[::1]:8080/hook", True),
        ("http://[2001:db8:0:0:0:0:0:1]/", True),
        ("http://shop.example/" + "é" * (2048 - 20), True),
        ("http://shop.example/" + "é" * (2048 - 19), False),
        ("ftp://shop.example", False),
        ("http://", False),
        ("http:///hook", False),
        ("https://?to=shop", False),
        ("http://:80/hook", False),
        ("http://shop.example:0/", False),
        ("http://shop.example:65536/", False),
        ("http://shop.example:http/", False),
        ("http://shop:80:80/", False),
        ("http://[::1/", False),
        ("http://[1:2]/", False),
        ("http://[::1::2]/", False),
        ("https://user:hush@shop.example", False),
        ("https://shop.example/hook#part", False),
        ("https://shop.example/a b", False),
        ("https://shop.example/\x7f", False),
        ("", False),
    ],
)
def test_client_and_function_agree_on_webhooks(plain: Any, client: Dispatcher, url: str, accepted: bool) -> None:
    ops.run(plain, functions.install(client.settings))
    for submit in (
        lambda thread: client.submit("echo", "x", thread=thread, queue="nobody", webhook=url).outcome,
        lambda thread: call(plain, thread, webhook=url)[0].decode(),
    ):
        thread = uuid.uuid4().hex
        if accepted:
            assert submit(thread) == "queued"
        else:
            with pytest.raises((InvalidInput, ResponseError), match="webhook"):
                submit(thread)


def test_the_function_takes_every_id_that_the_client_takes(plain: Any, client: Dispatcher) -> None:
    ops.run(plain, functions.install(client.settings))
    for thread in ("né", "日本語", "𝄞 clef", "ÿ\u00a0\ud7ff\ue000\uffff\U0010ffff", "t" * 200):
        name = f"{uuid.uuid4().hex}{thread}"
        outcome = plain.execute_command(
            "FCALL", "postroom_submit", 1, keys.thread(keys.check_id(name, "thread")), "echo", "né?", "queue", "nobody"
        )
        assert client.get_run(outcome[1].decode()).thread_id == name

"""The fleet at work: a streamed answer, an approval, mail, and a worker killed in the middle of a run.

    python examples/demo.py

Starts an embedded server, a dispatcher and two workers in a temporary directory, and takes everything down again.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroom.dispatcher import Dispatcher
from postroom.mailbox.server import start
from postroom.mailbox.settings import Settings

HERE = Path(__file__).parent


def told(words: str) -> None:
    print(words, flush=True)


@contextmanager
def fleet(url: str) -> Iterator[None]:
    command = [sys.executable, "-m", "postroom.worker", "up", "--url", url, "--app", "agents:app", "--processes", "2"]
    process = subprocess.Popen(command, cwd=HERE, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait_for_workers(client: Dispatcher, count: int) -> None:
    until = time.monotonic() + 30
    while len(client.stats().workers) < count:
        if time.monotonic() > until:
            raise SystemExit("the workers did not come up")
        time.sleep(0.05)


def follow(client: Dispatcher, run_id: str, after: int = 0) -> str:
    """Shows a run's words as they come, until it ends or waits; says which."""
    for entry in client.events(run_id, after):
        event = entry.event
        match event["type"]:
            case "text_delta":
                print(event["delta"], end="", flush=True)
            case "run_requeued":
                print(f"\n   [{event['reason']}: another worker goes on] ", end="", flush=True)
            case "run_waiting":
                return "waiting"
            case "run_finish":
                print()
                return str(event["termination"])
    return "nothing"


def killed_in_the_middle(client: Dispatcher) -> bool:
    told("\n2. A run loses its worker to kill -9 in the middle of a step.")
    run_id = client.submit("storyteller", "Tell me a story.", thread="story").run_id
    print("   storyteller: ", end="", flush=True)
    for entry in client.events(run_id):
        if entry.event["type"] == "text_delta":
            print(entry.event["delta"], end="", flush=True)
            break
    holder = client.holder("story")
    pids = {pulse.name: int(pulse.fields["pid"]) for pulse in client.stats().workers}
    if holder is None:
        raise SystemExit("nobody holds the thread")
    os.kill(pids[holder.worker], signal.SIGKILL)
    killed = time.monotonic()
    ended = follow(client, run_id, entry.number)
    record = client.get_run(run_id)
    later = time.monotonic() - killed
    told(f"   ended {ended} {later:.1f} s after the kill; attempts {record.attempts}, steps {record.step}")
    return ended == "natural_end" and record.attempts == 1 and record.step == 3


def approved(client: Dispatcher) -> bool:
    told("\n3. A run asks a person. While it waits it holds neither worker nor lock.")
    run_id = client.submit("support", "I want my money back.", thread="order 7").run_id
    print("   support: ", end="", flush=True)
    waits = follow(client, run_id)
    (call,) = client.calls(run_id)
    question = call.ticket.message if call.ticket else ""
    told(f"\n   {waits} for approval: {question} Holder of the thread: {client.holder('order 7')}")
    client.send("order 7", "And please be quick.", sender="customer")
    told(f"   unread mail meanwhile: {[mail.message['content'][0]['text'] for mail in client.unread('order 7')]}")
    client.decide(run_id, call.call_id, "allow_once", by="ann")
    print("   ann says yes. support: ", end="", flush=True)
    ended = follow(client, run_id, client.get_run(run_id).events - 1)
    record = client.get_run(run_id)
    roles = [entry.message["role"] for entry in client.messages("order 7")]
    told(f"   the thread now: {' '.join(roles)}")
    return record.status == "done" and ended == "natural_end" and roles.count("tool") == 1


def main() -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, start(Settings(data_dir=Path(folder))) as server, fleet(server.url):
        told(f"server {server.url}, a dispatcher, two workers")
        with Dispatcher(server.url) as client:
            wait_for_workers(client, 2)
            told("\n1. A run is submitted, served and streamed.")
            print("   echo: ", end="", flush=True)
            well = follow(client, client.submit("echo", "Hello from the postroom.").run_id) == "natural_end"
            well = killed_in_the_middle(client) and well
            well = approved(client) and well
            told("\nlook for yourself while a fleet runs:")
            for line in (
                "HGETALL 'postroom:{story}:thread'",
                "XRANGE 'postroom:{story}:log' - +",
                "ZRANGE postroom:watch 0 -1",
            ):
                told(f"   redis-cli -u {server.url} {line}")
    told(f"\n{'all as promised' if well else 'SOMETHING WENT WRONG'} ({time.monotonic() - began:.0f} s)")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())

"""The fleet at work: an agent with tools, another agent, an approval and mail; a worker killed in the middle of a call.

    python examples/demo.py

Starts an embedded server, a dispatcher and two workers in a temporary directory, and takes everything down again.
"""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    """Shows a run as it goes on, until it ends or waits; says which."""
    for entry in client.events(run_id, after):
        event = entry.event
        match event["type"]:
            case "text_delta":
                print(event["delta"], end="", flush=True)
            case "tool_call_ready":
                print(f"\n   [calls {event['name']} {event['arguments']}] ", end="", flush=True)
            case "tool_call_done" | "tool_call_resumed" if event.get("outcome") != "suspended":
                print(f"\n   [result {shown(event.get('result'))}] ", end="", flush=True)
            case "run_requeued" if event["reason"] == "crash":
                print("\n   [its worker is dead: another one goes on] ", end="", flush=True)
            case "run_waiting" if event["reason"] == "tasks":
                print("\n   [waits for the other agent, without a worker] ", end="", flush=True)
            case "run_waiting":
                return "waiting"
            case "run_finish":
                print()
                return str(event["termination"])
    return "nothing"


def shown(result: Any) -> Any:
    """A result in brief: of another agent only what it said."""
    said = result.get("data", {}).get("response") if isinstance(result, dict) and "data" in result else None
    return said or result


def approved(client: Dispatcher) -> bool:
    told("\n1. An agent streams its answer, uses a tool, asks another agent, and asks a person before it pays.")
    run_id = client.submit("support", "My teapot is broken.", thread="order 7").run_id
    print("   support: ", end="", flush=True)
    waits = follow(client, run_id)
    (call,) = client.calls(run_id)
    question = call.ticket.message if call.ticket else ""
    told(f"\n   It is {waits}; holder of the thread: {client.holder('order 7')}. It costs nothing.")
    warehouse = client.submit("warehouse", "Tell support what is new.", thread="warehouse").run_id
    client.wait(warehouse, timeout=20)
    until = time.monotonic() + 20
    while not (mail := client.unread("order 7")) and time.monotonic() < until:
        time.sleep(0.02)
    words = [each.message["content"][0]["text"] for each in mail]
    told(f"   A third agent writes to it meanwhile, unread so far: {words}")
    yes = answered(question)
    client.decide(run_id, call.call_id, "allow_once" if yes else "deny", by="you")
    print(f"   {'Yes' if yes else 'No'}. support: ", end="", flush=True)
    ended = follow(client, run_id, client.get_run(run_id).events - 1)
    record = client.get_run(run_id)
    roles = [entry.message["role"] for entry in client.messages("order 7")]
    told(f"   the thread now: {' '.join(roles)}; {record.usage.output_tokens} tokens in {record.step} steps")
    return record.status == "done" and ended == "natural_end" and roles.count("tool") == 3 and roles.count("user") == 2


def answered(question: str) -> bool:
    """What whoever sits at the terminal says; without one, or after ten seconds, it is yes."""
    if not sys.stdin.isatty():
        told(f"   {question} Nobody is here to say, so: yes.")
        return True
    print(f"   {question} [Y/n] ", end="", flush=True)
    ready, _, _ = select.select([sys.stdin], [], [], 10)
    return not ready or not sys.stdin.readline().strip().lower().startswith("n")


def killed_in_the_middle(client: Dispatcher) -> bool:
    told("\n2. A worker is killed with kill -9 while one of its runs is in the middle of a tool call.")
    run_id = client.submit("storyteller", "Tell me a story.", thread="story").run_id
    print("   storyteller: ", end="", flush=True)
    for entry in client.events(run_id):
        if entry.event["type"] == "text_delta":
            print(entry.event["delta"], end="", flush=True)
        if entry.event["type"] == "inference_complete":
            break
    holder = client.holder("story")
    pids = {pulse.name: int(pulse.fields["pid"]) for pulse in client.stats().workers}
    if holder is None:
        raise SystemExit("nobody holds the thread")
    os.kill(pids[holder.worker], signal.SIGKILL)
    print(f"\n   [kill -9 {pids[holder.worker]}] ", end="", flush=True)
    killed = time.monotonic()
    ended = follow(client, run_id, entry.number)
    record = client.get_run(run_id)
    later = time.monotonic() - killed
    told(
        f"   ended {ended} {later:.1f} s after the kill; attempts {record.attempts}, steps {record.step}, nothing lost"
    )
    return ended == "natural_end" and record.attempts == 1 and record.step == 2


def main() -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, start(Settings(data_dir=Path(folder))) as server, fleet(server.url):
        told(f"server {server.url}, a dispatcher, two workers")
        with Dispatcher(server.url) as client:
            wait_for_workers(client, 2)
            well = approved(client)
            well = killed_in_the_middle(client) and well
            told("\nlook for yourself while a fleet runs:")
            for line in (
                "XRANGE 'postroom:{order 7}:log' - +",
                "HGETALL 'postroom:{story}:thread'",
                "ZRANGE postroom:watch 0 -1",
            ):
                told(f"   redis-cli -u {server.url} {line}")
    told(f"\n{'all as promised' if well else 'SOMETHING WENT WRONG'} ({time.monotonic() - began:.0f} s)")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())

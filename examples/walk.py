"""A walk through the verbs: a clerk submits and decides, two workers claim, commit, crash and take over.

    python examples/walk.py

Everything happens on a real server, with a lease of a second instead of ten, so that the crash is quick to watch.
"""

import sys
import tempfile
import time
from pathlib import Path

import redis

from postroom.mailbox import approvals, commit, inbox, journal, keys, lane, lock, log, ops, records, watch
from postroom.mailbox.commit import Batch, Owner
from postroom.mailbox.connect import connect
from postroom.mailbox.contracts import Decision, Letter, RunRequest, Termination, ToolCall, message
from postroom.mailbox.errors import FenceLost
from postroom.mailbox.lifecycle import CallStatus, TerminationKind, WaitingReason
from postroom.mailbox.server import start
from postroom.mailbox.settings import Settings

THREAD, RUN, LEASE_MS = "order 7", "walk-1", 1000


def told(who: str, what: str) -> None:
    print(f"  {who:<9} {what}")


def first_worker(client: redis.Redis) -> Owner:
    claim = ops.run(client, lock.claim(THREAD, RUN, "worker-1", LEASE_MS))
    owner = Owner(THREAD, RUN, claim.fence)
    told("worker-1", f"claims the thread: fence {claim.fence}")
    call = ToolCall(id="call-1", name="refund", arguments={"order": 7})
    step = Batch(1, step=1, run_fields={"step": 1})
    step.say(message("user", "Refund order 7, please.").as_dict())
    step.say({"role": "assistant", "tool_calls": [call.as_dict()]})
    step.tell({"type": "step_start"}).tell({"type": "tool_call_ready", "id": call.id, "name": call.name})
    step.note_call(call.id, CallStatus.RUNNING, name=call.name, index=0)
    ops.run(client, commit.commit(owner, step))
    told("worker-1", "commits its intent to call `refund`, then dies")
    return owner


def take_over(client: redis.Redis) -> Owner:
    until = time.monotonic() + 10
    while (look := ops.run(client, watch.reclaim(THREAD, 5))).doorbell is None:
        if time.monotonic() > until:
            raise SystemExit("the run was not taken back")
        time.sleep(0.05)
    told("sweeper", f"finds the lease run out and rings for {look.doorbell.run_id}")
    claim = ops.run(client, lock.claim(THREAD, RUN, "worker-2", LEASE_MS))
    calls = records.call_records(claim.calls)
    told("worker-2", f"takes over at step {claim.run['step'].decode()}: fence {claim.fence}, open call {calls[0].name}")
    return Owner(THREAD, RUN, claim.fence)


def ask_and_wait(client: redis.Redis, owner: Owner) -> None:
    ticket = {"id": "ticket-1", "call_id": "call-1", "tool": "refund", "message": "Refund 20 euros?"}
    asked = Batch(2, step=1).raise_ticket("call-1", ticket)
    ops.run(client, commit.suspend(owner, asked, WaitingReason.APPROVAL))
    told("worker-2", f"asks a person and lets go; holder now: {ops.run(client, lock.holder(THREAD))}")


def answer(client: redis.Redis) -> None:
    yes = Decision(id="decision-1", target="ticket-1", action="allow_once", by="ann")
    first = ops.run(client, approvals.decide(THREAD, RUN, [yes]))
    again = ops.run(client, approvals.decide(THREAD, RUN, [yes]))
    told("clerk", f"decides: {first.outcome}; the same once more: {again.outcome}")
    letter = Letter(id="mail-1", thread_id=THREAD, message=message("user", "And say sorry."), sender="clerk")
    receipt = ops.run(client, inbox.send(letter, Settings()))
    told("clerk", f"sends mail: {receipt.outcome}, run {receipt.run_id} will read it")


def finish(client: redis.Redis) -> None:
    claim = ops.run(client, lock.claim(THREAD, RUN, "worker-2", LEASE_MS))
    owner = Owner(THREAD, RUN, claim.fence)
    told(
        "worker-2", f"wakes with the decision and {len(claim.mail)} mail: {claim.mail[0].message['content'][0]['text']}"
    )
    last = Batch(3, step=2, clear_calls=True)
    last.say({"role": "tool", "tool_call_id": "call-1", "content": [{"type": "text", "text": "refunded"}]})
    last.say(claim.mail[0].message).read(claim.mail[0].number)
    last.say(message("assistant", "Sorry! The money is on its way.").as_dict()).tell({"type": "step_end"})
    done = ops.run(client, commit.finish(owner, last, Termination(kind=TerminationKind.NATURAL_END)))
    told("worker-2", done.outcome)


def walk(url: str) -> bool:
    clerk, worker = connect(url), connect(url)
    print(f"a walk on {url}")
    request = RunRequest(
        run_id=RUN, thread_id=THREAD, agent="support", messages=(message("user", "Refund order 7, please."),)
    )
    told("clerk", f"submits run {RUN}: {ops.run(clerk, lane.submit(request, Settings())).outcome}")
    dead = first_worker(worker)
    alive = take_over(worker)
    try:
        ops.run(worker, commit.commit(dead, Batch(2)))
        raise SystemExit("a worker of the past was let in")
    except FenceLost as error:
        told("worker-1", f"comes back and is refused: {error.message}")
    ask_and_wait(worker, alive)
    answer(clerk)
    finish(worker)
    print("\nwhat the thread says now")
    view = log.view(ops.run(clerk, log.read(THREAD)))
    for entry in view:
        told(
            entry.message["role"],
            "".join(block["text"] for block in entry.message.get("content", ())) or "(calls refund)",
        )
    events = [each.event["type"] for each in ops.run(clerk, journal.read(THREAD, RUN))]
    print(f"\nevents: {' '.join(events)}")
    print(f"look for yourself while a server runs: redis-cli -u {url} hgetall '{keys.run(THREAD, RUN)}'")
    clerk.close()
    worker.close()
    return events.count("run_finish") == 1 and len(view) == 5


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, start(Settings(data_dir=Path(folder))) as server:
        return 0 if walk(server.url) else 1


if __name__ == "__main__":
    sys.exit(main())

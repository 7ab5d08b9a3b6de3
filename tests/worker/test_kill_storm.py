"""The storm: workers are killed all the time and the server is restarted, and still everything happens exactly once."""

import os
import random
import signal
import time
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from postroom.mailbox.contracts import RunRequest
from postroom.mailbox.errors import PostroomError
from tests.waiting import until
from tests.worker import history
from tests.worker.fleet import LONG, Fleet, FleetOn, Server, report

RUNS, THREADS, STEPS, RESTARTS, WITHIN = (500, 180, 6, 2, 900.0) if LONG else (60, 25, 4, 1, 60.0)
KILL_EVERY = 0.3


def requests(fleet: Fleet, chance: random.Random) -> list[RunRequest]:
    """Runs of several steps, a few to a thread; some wait for a time, some for a person."""
    threads = [fleet.thread() for _ in range(THREADS)]
    asked: set[str] = set()
    made = []
    for index in range(RUNS):
        thread = threads[index % THREADS]
        script: list[Any] = [
            {"sleep": chance.uniform(0.02, 0.25), "say": f"{index}.{step} {fleet.tag}"} for step in range(1, STEPS + 1)
        ]
        if index % 7 == 3:
            script.insert(chance.randrange(STEPS), {"wait": "time", "for_ms": chance.randrange(50, 500)})
        if index % 11 == 5 and thread not in asked:  # calls are named by step, so one such run to a thread
            asked.add(thread)
            script.insert(chance.randrange(STEPS), {"ask": "may I?"})
        made.append(fleet.request(script, thread))
    return made


class Storm:
    """Kills a random worker every so often, until every run is done."""

    def __init__(self, fleet: Fleet, server: Server, runs: list[RunRequest], chance: random.Random) -> None:
        self.fleet, self.server, self.runs, self.chance = fleet, server, runs, chance
        self.kills, self.restarts = 0, 0
        self.next_kill = time.monotonic() + KILL_EVERY

    def over(self) -> bool:
        statuses = self.fleet.statuses(self.runs)
        done = statuses.count("done")
        if done > (self.restarts + 1) * len(self.runs) / (RESTARTS + 1):
            self.restart()
        elif time.monotonic() > self.next_kill:
            self.kill()
        self.answer([run for run, status in zip(self.runs, statuses, strict=True) if status == "waiting"])
        return done == len(self.runs)

    def kill(self) -> None:
        alive = self.fleet.alive()
        if alive:
            with suppress(ProcessLookupError):
                os.kill(alive[self.chance.choice(sorted(alive))], signal.SIGKILL)
                self.kills += 1
        self.next_kill = time.monotonic() + KILL_EVERY

    def restart(self) -> None:
        self.server.stop()
        self.server.start()
        self.restarts += 1
        self.fleet.reconnect()

    def answer(self, waiting: list[RunRequest]) -> None:
        for run in waiting:
            for call in self.fleet.dispatcher.calls(run.run_id):
                with suppress(PostroomError, RedisError):
                    self.fleet.dispatcher.decide(
                        run.run_id, call.call_id, "allow_once", decision_id=f"{run.run_id}-{call.call_id}"
                    )


def test_every_run_is_done_exactly_once(server: Server, fleet_on: FleetOn) -> None:
    chance = random.Random(20)
    with fleet_on(server.url, max_attempts=100_000) as fleet:
        fleet.supervised(4, verb="up", concurrency=16)
        began = time.monotonic()
        runs = requests(fleet, chance)
        fleet.submit_all(runs)
        storm = Storm(fleet, server, runs, chance)
        until(storm.over, WITHIN, "every run is done", every=0.05)
        assert storm.restarts == RESTARTS
        took = time.monotonic() - began
        # A fleet that is slow to come up again leaves nobody to kill.
        assert took / storm.kills < 2
        until(lambda: fleet.client.llen(f"rq:queue:{fleet.queue}") == 0, 30, "no doorbell is left unheard")
        assert history.wrong(fleet, runs) == []
        assert fleet.client.zcard("postroom:dead") == 0
        report(f"kill storm of {RUNS} runs, {storm.kills} kills, {storm.restarts} restarts", [took])

"""Submits for `fleet.py`: runs, and doorbells of runs that nobody knows, which a worker takes and answers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import bench

from postroom.dispatcher import Dispatcher, RunRequest, message
from postroom.mailbox.ids import new_id
from postroom.mailbox.scripts import JOB

WORDS = "Where is order 7? It was to arrive on Monday."


class Sender:
    """The client that services use, blocking."""

    bulk = True

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    async def one(self, kind: str) -> None:
        self.dispatcher.submit(kind, WORDS)

    async def many(self, kind: str, count: int) -> None:
        if kind == "bell":
            self._ring(count)
            return
        outcomes = self.dispatcher.submit_many(_request(kind) for _ in range(count))
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failed:
            raise failed[0]

    def _ring(self, count: int) -> None:
        with self.dispatcher.client.pipeline(transaction=False) as pipe:
            for _ in range(count):
                run_id = new_id()
                data = json.dumps([JOB, None, [f"thread-{run_id}", run_id], {}])
                pipe.hset(f"rq:job:{run_id}-1", mapping={"status": "queued", "origin": "default", "data": data})
                pipe.rpush("rq:queue:default", f"{run_id}-1")
            pipe.execute()


def _request(agent: str) -> RunRequest:
    run_id = new_id()
    said = (message("user", WORDS),)
    return RunRequest(run_id=run_id, thread_id=f"thread-{run_id}", agent=agent, messages=said)


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Sender]:
    with Dispatcher(url) as dispatcher:
        yield Sender(dispatcher)


if __name__ == "__main__":
    bench.main(connect)

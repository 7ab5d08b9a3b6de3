"""Several threads served by hand: whoever has a doorbell in the queue gets a worker, until nobody has one."""

import json
from collections.abc import Callable
from typing import Any

from postroom.mailbox import keys, ops, watch
from postroom.worker.app import App
from tests.worker.loop.office import Office

Plain = dict[str, Any]


class Town(Office):
    """An office whose runs may start others, all of them on one queue of its own."""

    def __init__(self, url: str, app: App, **settings: Any) -> None:
        super().__init__(url, app, **{"max_attempts": 100, **settings})
        self.served: list[str] = []

    def next_bell(self) -> tuple[str, str] | None:
        """Thread and run of the next doorbell."""
        client: Any = self.dispatcher.client
        job = client.lpop(f"rq:queue:{self.thread}")
        if job is None:
            return None
        data = client.hget(f"rq:job:{job.decode()}", "data")
        thread, run = json.loads(data)[2]
        return thread, run

    def work(self, die_at: str = "", nth: int = 1, bells: int = 10_000) -> int:
        """Answers doorbells until there are none, or so many; how often a worker died (once at most)."""
        deaths = 0
        before = len(self.points)
        while bells and (bell := self.next_bell()):
            bells -= 1
            thread, run = bell
            self.served.append(run)
            left = nth - self.points[before:].count(die_at)
            if self.serve(run, die_at if die_at and not deaths and left > 0 else "", max(left, 1), thread):
                deaths += 1
                self.sweep()
        return deaths

    def sweep(self) -> None:
        """Looks at every thread of ours, as the sweeper would, and carries out what is left."""
        client: Any = self.dispatcher.client
        for thread in self.threads():
            look = ops.run(client, watch.reclaim(thread, self.settings.max_attempts))
            if look.errands:
                self.dispatcher.carry_out(thread)

    def threads(self) -> list[str]:
        """The threads of this town that the watch list has."""
        client: Any = self.dispatcher.client
        named = [name.decode() for name in client.zrange(keys.WATCH, 0, -1)]
        return [name for name in named if client.hget(keys.thread(name), "queue") == self.thread.encode()]

    def runs(self) -> dict[str, Any]:
        """All runs of this town: those that were served, and those that wait for it."""
        client: Any = self.dispatcher.client
        waiting = [job.decode().rpartition("-")[0] for job in client.lrange(f"rq:queue:{self.thread}", 0, -1)]
        return {run: self.record(run) for run in dict.fromkeys([*self.served, *waiting])}

    def tool_results(self, thread: str = "") -> list[Any]:
        """What tools gave back, as the model reads it."""
        said = [message for message in self.log(thread) if message["role"] == "tool"]
        return [_parsed(message["content"][0]["text"]) for message in said]


def _parsed(words: str) -> Any:
    try:
        return json.loads(words)
    except ValueError:
        return words


def calling(name: str, **arguments: Any) -> Plain:
    """An answer that calls one tool."""
    return {"calls": [{"name": name, "arguments": arguments}]}


Script = Callable[..., Any]

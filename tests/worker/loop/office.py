"""A worker without a process: answers doorbells by hand, dies at named points, and shows what is in Redis then."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

from postroom.dispatcher import Dispatcher
from postroom.mailbox import codec, keys, ops, records, watch
from postroom.mailbox.connect import connect_async
from postroom.mailbox.group import Group
from postroom.mailbox.ops import Op, hash_fields
from postroom.mailbox.settings import Settings
from postroom.worker.activation import activate
from postroom.worker.app import App
from postroom.worker.desk import Desk

Plain = dict[str, Any]


# Where a worker may die: every point that some run passes.
POINTS = (
    "claimed",
    "before_model",
    "after_model",
    "before_commit",
    "after_commit",
    "tool_started",
    "tool_finished",
    "call_journaled",
    "tools_done",
    "before_suspend",
)


class Died(BaseException):
    """The process is no more."""


class Office:
    """One thread and the runs on it, served in this process by workers that come and go."""

    def __init__(self, url: str, app: App, **settings: Any) -> None:
        self.url, self.app = url, app
        self.settings = Settings(**settings)
        self.dispatcher = Dispatcher(url, self.settings)
        self.thread = f"t-{uuid.uuid4().hex[:12]}"
        self.workers = 0
        self.points: list[str] = []
        self.look: Callable[[str], None] = lambda _: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispatcher.close()

    def submit(self, words: str = "hello", agent: str = "clerk", **more: Any) -> str:
        """Enqueues a run on the thread."""
        return self.dispatcher.submit(agent, words, **{"thread": self.thread, "queue": self.thread, **more}).run_id

    def serve(
        self, run_id: str, die_at: str = "", nth: int = 1, thread: str = "", beside: Any = None, noticed: bool = True
    ) -> bool:
        """One activation by a new worker; whether it died at the named point, the n-th time it came there.

        Unless somebody noticed, its lease must run out before another worker can go on.
        """
        return asyncio.run(self._serve(run_id, die_at, nth, thread or self.thread, beside, noticed))

    def race(self, run_id: str, workers: int = 2) -> None:
        """Several workers answer the same doorbell at once."""

        async def all_at_once() -> None:
            await asyncio.gather(*(self._serve(run_id, "", 1, self.thread, None) for _ in range(workers)))

        asyncio.run(all_at_once())

    async def _serve(
        self,
        run_id: str,
        die_at: str,
        nth: int,
        thread: str,
        beside: Callable[[Desk], Awaitable[None]] | None,
        noticed: bool = True,
    ) -> bool:
        self.workers += 1
        worker = f"worker-{self.workers}"
        client = await connect_async(self.url)
        desk = self.desk = Desk(Group(client), self.app, self.settings, worker)
        left = nth
        over: list[Any] = []

        def reach(point: str) -> None:
            nonlocal left
            self.points.append(point)
            self.look(point)
            if point == die_at:
                left -= 1
                if left == 0:
                    # Whatever is done on the side takes the whole process along.
                    if asyncio.current_task() in desk.aside:
                        over.append(asyncio.current_task())
                        serving.cancel()
                    raise Died(point)

        desk.reach = reach
        serving = asyncio.ensure_future(activate(desk, thread, run_id))
        try:
            if beside:
                await beside(desk)
            await serving
            await _sent_off(desk)
        except BaseException as error:
            if not over and not _died(error):
                raise
            # A dead process takes its tasks along, and its supervisor says so.
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, *over, return_exceptions=True)
            if noticed:
                ops.run(self.dispatcher.client, watch.reclaim(thread, self.settings.max_attempts, worker))
            return True
        finally:
            await desk.group.close()
            await client.aclose()
        return False

    def expire(self, run_id: str) -> None:
        """Lets the time of a waiting run come."""
        wake = self.record(run_id).wake
        ops.run(self.dispatcher.client, watch.reclaim(self.thread, self.settings.max_attempts, "", now=wake + 1))

    def skip_to_start(self, run_id: str) -> None:
        """Lets the time come at which a failed attempt is repeated."""
        self.dispatcher.client.hset(keys.run(self.thread, run_id), "start_at", "0")

    def run(self, words: str = "hello", **more: Any) -> str:
        """A run from its submission to where it ends or waits."""
        run_id = self.submit(words, **more)
        self.serve(run_id)
        return run_id

    def record(self, run_id: str) -> Any:
        """The run as Redis has it."""
        return self.dispatcher.get_run(run_id)

    def events(self, run_id: str) -> list[Plain]:
        """All that was told of a run."""
        return [entry.event for entry in self.dispatcher.events(run_id, live=False)]

    def types(self, run_id: str) -> list[str]:
        """The types of all that was told, less what only a crash adds."""
        return [event["type"] for event in self.events(run_id)]

    def log(self, thread: str = "") -> list[Plain]:
        """What was said, as a model gets to see it."""
        return [entry.message for entry in self.dispatcher.messages(thread or self.thread)]

    def state(self, run_id: str) -> Plain:
        """What plugins keep, of the thread and of the run."""
        client = self.dispatcher.client
        of_run = Op(("HGETALL", keys.run_state(self.thread, run_id)), hash_fields)
        stored = {**ops.run(client, records.get_state(self.thread)), **ops.run(client, of_run)}
        return {name: codec.decode(value) for name, value in stored.items()}

    def words(self) -> list[tuple[str, str]]:
        """Who said what."""
        return [(message["role"], text(message)) for message in self.log()]


async def _sent_off(desk: Desk) -> None:
    """What the worker does on the side; it may die over that, too."""
    while desk.aside:
        done, _ = await asyncio.wait(desk.aside)
        for task in done:
            task.result()


def _died(error: BaseException) -> bool:
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return isinstance(error, Died) or any(map(_died, inner))


def text(message: Plain) -> str:
    """The words of a message."""
    return "".join(block.get("text", "") for block in message.get("content", ()) if block["type"] == "text")


def valid(messages: Sequence[Plain]) -> None:
    """Every call has one result, right behind it and in order; no result is without its call."""
    expected: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert expected, f"a result without a call: {message}"
            assert expected.pop(0) == message["tool_call_id"]
        else:
            assert not expected, f"calls without a result: {expected}"
            expected = [call["id"] for call in message.get("tool_calls", ())]
    assert not expected, f"calls without a result: {expected}"


def in_order(types: Sequence[str]) -> None:
    """The order that followers of a run may rely on."""
    # What comes from outside may be first: a cancel, or the note that a run whose worker wrote nothing is queued again.
    inside = [kind for kind in types if kind not in ("run_requeued", "cancel_requested")]
    assert inside[:1] in ([], ["run_start"])
    assert types.count("run_finish") <= 1
    if "run_finish" in types:
        assert types[-1] == "run_finish"
    is_open = inferred = False
    for kind in types:
        if kind == "step_start":
            assert not is_open, "steps never nest"
            is_open, inferred = True, False
        elif kind == "step_end":
            assert is_open, "an end without a start"
            is_open = False
        elif kind in ("text_delta", "reasoning_delta", "tool_call_start", "tool_call_delta", "tool_call_ready"):
            assert is_open, f"{kind} outside of a step"
        elif kind == "inference_complete":
            inferred = True
        elif kind == "tool_call_done":
            assert inferred, "a call was done before the model had finished"
    if "run_finish" in types:
        assert not is_open, "the last step was not closed"

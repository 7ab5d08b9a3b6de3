"""What the Redis layer costs: round trips and commands per verb, and its rate against a bare `EVALSHA return 1`.

    python benchmarks/redis_layer.py            # the embedded server
    POSTROOM_REDIS_URL=redis://… python benchmarks/redis_layer.py

The verb and the bare script take turns in slices of 64 calls on the same client, so that a noisy moment meets both; the
figure printed is the median over all slices. `alone` issues one call at a time, `together` 64 at once.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from postroom.mailbox import commit, keys, lane, lock
from postroom.mailbox.commit import Batch, Owner
from postroom.mailbox.connect import connect_async
from postroom.mailbox.contracts import RunRequest, Termination, message
from postroom.mailbox.group import Group
from postroom.mailbox.lifecycle import TerminationKind
from postroom.mailbox.ops import Op
from postroom.mailbox.server import start
from postroom.mailbox.settings import Settings

VERBS = ("submit", "claim", "commit", "finish")
BAR = 0.5
SLICE = 64


class Round:
    """One batch of fresh threads, taken through submit, claim, commit and finish."""

    def __init__(self, size: int, settings: Settings) -> None:
        tag = uuid.uuid4().hex[:12]
        self.settings = settings
        self.threads = [f"bench-{tag}-{i}" for i in range(size)]
        self.runs = [f"{tag}-{i}" for i in range(size)]
        self.owners: list[Owner] = []

    def bare(self, sha: str) -> "Maker":
        """The yardstick: a script that does nothing, on the same keys."""
        return lambda i: Op(("EVALSHA", sha, 1, keys.thread(self.threads[i])), int)

    def submit(self, i: int) -> Op[Any]:
        words = message("user", "Where is order 7? It was to arrive on Monday.")
        request = RunRequest(run_id=self.runs[i], thread_id=self.threads[i], agent="support", messages=(words,))
        return lane.submit(request, self.settings)

    def claim(self, i: int) -> Op[Any]:
        return lock.claim(self.threads[i], self.runs[i], "bench", 60_000)

    def commit(self, i: int) -> Op[Any]:
        batch = Batch(1, step=1, run_fields={"step": 1})
        batch.say({"role": "assistant", "content": [{"type": "text", "text": "It left the depot this morning. " * 4}]})
        batch.tell({"type": "step_start"}).tell({"type": "text_delta", "delta": "It left the depot."}).tell(
            {"type": "step_end"}
        )
        return commit.commit(self.owners[i], batch)

    def finish(self, i: int) -> Op[Any]:
        return commit.finish(
            self.owners[i], Batch(2), Termination(kind=TerminationKind.NATURAL_END), {"response": "ok"}
        )

    def learn(self, verb: str, replies: list[Any]) -> None:
        if verb == "claim":
            self.owners = [
                Owner(thread, run, claim.fence)
                for thread, run, claim in zip(self.threads, self.runs, replies, strict=True)
            ]


Maker = Callable[[int], Op[Any]]


async def timed(group: Group, make: Maker, numbers: range, width: int) -> tuple[float, list[Any]]:
    """Seconds to make and run the ops of these numbers, `width` of them at a time."""
    replies: dict[int, Any] = {}
    left = iter(numbers)

    async def caller() -> None:
        for i in left:
            replies[i] = await group.run(make(i))

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(width)))
    return time.perf_counter() - started, [replies[i] for i in numbers]


async def ratios(group: Group, client: Any, size: int, rounds: int, width: int) -> dict[str, float]:
    """Rate of each verb as a share of the bare script's: the median over slices that take turns."""
    sha = await client.script_load("return 1")
    found: dict[str, list[float]] = {verb: [] for verb in VERBS}
    for _ in range(rounds):
        batch = Round(size, Settings())
        for verb in VERBS:
            replies: list[Any] = []
            for first in range(0, size, SLICE):
                numbers = range(first, min(first + SLICE, size))
                bare, _ = await timed(group, batch.bare(sha), numbers, width)
                took, some = await timed(group, getattr(batch, verb), numbers, width)
                found[verb].append(bare / took)
                replies += some
            batch.learn(verb, replies)
    return {verb: statistics.median(values) for verb, values in found.items()}


async def costs(group: Group, client: Any, size: int) -> dict[str, tuple[float, float]]:
    """Round trips and commands executed inside the server, per verb."""
    batch, found = Round(size, Settings()), {}
    for verb in VERBS:
        await client.config_resetstat()
        trips = group.round_trips
        _, replies = await timed(group, getattr(batch, verb), range(size), 1)
        stats = await client.info("commandstats")
        inside = sum(
            stat["calls"] for name, stat in stats.items() if name not in {"cmdstat_fcall", "cmdstat_config|resetstat"}
        )
        batch.learn(verb, replies)
        found[verb] = ((group.round_trips - trips) / size, inside / size)
    return found


@contextmanager
def server() -> Iterator[str]:
    """The server named in the environment, or an embedded one of our own."""
    settings = Settings.from_env()
    if settings.redis_url:
        yield settings.redis_url
        return
    with tempfile.TemporaryDirectory() as folder, start(Settings(data_dir=Path(folder))) as own:
        yield own.url


async def measure(url: str, size: int, rounds: int) -> int:
    client = await connect_async(url)
    group = Group(client)
    warm = Round(50, Settings())
    for verb in VERBS:
        warm.learn(verb, (await timed(group, getattr(warm, verb), range(50), 8))[1])
    per_verb = await costs(group, client, size)
    alone = await ratios(group, client, size, rounds, 1)
    together = await ratios(group, client, size, rounds, 64)
    print("rate of each verb ÷ rate of EVALSHA return 1, one at a time and 64 together")
    print(f"{'verb':<8} {'round trips':>11} {'commands':>9} {'alone':>7} {'together':>9}")
    for verb in VERBS:
        trips, commands = per_verb[verb]
        print(f"{verb:<8} {trips:>11.2f} {commands:>9.1f} {alone[verb]:>7.2f} {together[verb]:>9.2f}")
    await group.close()
    await client.aclose()
    one_trip = all(trips == 1 for trips, _ in per_verb.values())
    fast = alone["commit"] >= BAR
    print(f"one round trip each: {'yes' if one_trip else 'NO'}; commit alone ≥ {BAR}: {'yes' if fast else 'NO'}")
    return 0 if one_trip and fast else 1


def main(run: Callable[[Any], int] = uvloop.run) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=500, help="runs per round (default 500)")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default 7)")
    given = parser.parse_args()
    with server() as url:
        return run(measure(url, given.size, given.rounds))


if __name__ == "__main__":
    sys.exit(main())

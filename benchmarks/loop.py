"""What the agent loop costs: whole agent runs against the frameworks people use, and what a step takes from Redis.

    python benchmarks/loop.py [--quick] [--peers langgraph,…] [--lanes 64]

The run is always the same: a model that answers at once asks for one tool, the tool returns, the model says so. Each
contender is one process that does everything, and they take turns in slices of about a second, round after round, each
slice on an empty server or in a new file. Figures are medians over the rounds, ratios medians of the ratios within a
round. Peers are installed on demand, each into an environment of its own below `.bench/`.

Postroom keeps every run: submitted, queued, claimed, stepped, committed and finished in Redis, whose append-only file
is synced once a second, and for `redis-fsync` after every write. LangGraph's checkpoints in SQLite are synced with
every commit as they come; `sqlite-lazy` leaves that to the operating system, as Postroom does for up to a second.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import loop_cost
import redis
from frame import Column, Figures, bar, cell, install, table

from postroom.mailbox.connect import dial
from postroom.mailbox.server import start
from postroom.mailbox.settings import Settings

HERE = Path(__file__).parent
LANES = 64


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to carry agent runs out: whose, what it keeps them in, and about how many a second, to size a slice.

    `durable` if a run survives the death of its process, `needs` is a command its server must know, `fsync` lets the
    server sync after every write.
    """

    of: str
    keep: str
    about: int
    durable: bool = False
    needs: str = ""
    fsync: bool = False

    @property
    def name(self) -> str:
        return f"{self.of} {self.keep}"


PACKAGES = {
    "langgraph": ("langchain", "langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-redis", "uvloop"),
    "pydantic_ai": ("pydantic-ai-slim", "uvloop"),
    "openai_agents": ("openai-agents[redis]", "hiredis", "uvloop"),
}
OURS = Contender("postroom", "redis", 1_000, durable=True)
SYNCED = Contender("postroom", "redis-fsync", 800, durable=True, fsync=True)
PEERS = (
    Contender("langgraph", "sqlite", 80, durable=True),
    Contender("langgraph", "sqlite-lazy", 100, durable=True),
    Contender("langgraph", "redis", 60, durable=True, needs="FT.INFO"),
    Contender("langgraph", "memory", 300),
    Contender("pydantic_ai", "memory", 200),
    Contender("openai_agents", "memory", 300),
    # These keep what was said, not where the run stands: a run does not survive its process.
    Contender("openai_agents", "sqlite", 100),
    Contender("openai_agents", "redis", 150),
)
COLUMNS: tuple[Column, ...] = (
    ("rate", "runs/s", "{:,.0f}", False),
    ("cpu", "cpu µs", "{:,.0f}", True),
    ("server", "server µs", "{:,.0f}", True),
)


class Seat:
    """A contender's process, asleep while others have their turn."""

    def __init__(self, contender: Contender, python: Path, url: str) -> None:
        own = contender.of == OURS.of
        script = HERE / "runs_postroom.py" if own else HERE / "peers" / f"runs_{contender.of}.py"
        path = f"{HERE}{os.pathsep}{HERE / 'peers'}"
        self.contender = contender
        self.words = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self.process = subprocess.Popen(
            [python, script, contender.keep, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.words,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )

    def slice(self, count: int, lanes: int) -> dict[str, float]:
        """So many runs: the seconds they took, and the CPU seconds of the process."""
        if not self.process.stdin or not self.process.stdout:
            raise RuntimeError("it has no pipes")
        try:
            self.process.stdin.write(f"{count} {lanes}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.words.seek(0)
            raise RuntimeError(self.words.read().decode(errors="replace").strip().rpartition("\n")[2] or "it died")
        found: dict[str, float] = json.loads(answer)
        return found

    def leave(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.words.close()


@contextmanager
def seated(contenders: Sequence[Contender], cache: Path, url: str) -> Iterator[list[Seat]]:
    """A process for each contender."""
    pythons = {of: install(f"agents-{of}", PACKAGES[of], cache) for of in {c.of for c in contenders} & set(PACKAGES)}
    with ExitStack() as stack:
        seats = []
        for contender in contenders:
            seat = Seat(contender, pythons.get(contender.of, Path(sys.executable)), url)
            stack.callback(seat.leave)
            seats.append(seat)
        yield seats


def compete(seats: list[Seat], client: redis.Redis, rounds: int, seconds: float, lanes: int, figures: Figures) -> int:
    """A slice each per round; one that breaks is reported and the others go on."""
    code = 0
    # On a busy machine all are slower: the slice before says how many runs make the next one.
    pace: dict[str, float] = {seat.contender.name: seat.contender.about / 4 for seat in seats}
    for number in range(1, rounds + 1):
        print(f"round {number} of {rounds}", file=sys.stderr)
        for seat in list(seats):
            contender = seat.contender
            count = max(lanes, int(pace[contender.name] * seconds))
            client.flushall()
            client.config_set("appendfsync", "always" if contender.fsync else "everysec")
            before = _server_cpu(client)
            try:
                took = seat.slice(count, lanes)
            except RuntimeError as error:
                print(f"{contender.name} broke: {error}", file=sys.stderr)
                seats.remove(seat)
                code = 1
                continue
            pace[contender.name] = count / took["took"]
            # The server has also served what came before the clock: as many runs as there are lanes.
            server = (_server_cpu(client) - before) / (count + lanes) * 1e6
            figures.add(contender.name, rate=count / took["took"], cpu=took["cpu"] / count * 1e6, server=server)
    return code


def _server_cpu(client: redis.Redis) -> float:
    told = client.info("cpu")
    return float(told["used_cpu_user"] + told["used_cpu_sys"])


def within_rounds(figures: Figures, name: str, other: str, measure: str) -> list[float]:
    """How much larger one figure was than another, round by round."""
    return [one / two for one, two in zip(figures.all(name, measure), figures.all(other, measure), strict=False) if two]


def report(names: list[str], figures: Figures) -> None:
    """The figures, then ours against each."""
    print("\nmedians; cpu of the contender's process and of the server are per run")
    table(COLUMNS, names, lambda name, column: cell(figures.get(name, column[0]), column[2]))
    print(f"\n{OURS.name}, as a multiple of the others' rate and of their cpu, with the range over the rounds")
    for name in names:
        rates, cpus = (within_rounds(figures, OURS.name, name, measure) for measure in ("rate", "cpu"))
        if rates and name != OURS.name:
            print(f"  {name:<22} {_spread(rates)} of the rate, {_spread(cpus)} of the cpu")


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):6.2f}x ({min(values):.2f} to {max(values):.2f})"


def bars(peers: list[Contender], figures: Figures) -> bool:
    """What Postroom is held to against others."""
    print("\nbars")
    durable = [peer.name for peer in peers if peer.of == "langgraph" and peer.durable]
    keeping_nothing = [peer.name for peer in peers if peer.keep == "memory"]
    held = True
    for words, names, limit in (
        ("durable runs ÷ the fastest durable LangGraph", durable, 10),
        ("durable runs ÷ the fastest that keeps nothing", keeping_nothing, 2),
    ):
        found = figures.best(names, "rate")
        other = found[1] if found else "nobody"
        values = within_rounds(figures, OURS.name, other, "rate")
        held = bar(words, statistics.median(values) if values else None, limit, other) and held
    return held


def knows(client: redis.Redis, command: str) -> bool:
    """Whether the server has a command."""
    try:
        return not command or bool(client.execute_command(command))  # type: ignore[no-untyped-call]
    except redis.ResponseError as error:
        return "unknown command" not in str(error)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="few and short slices: shows that everything works, proves little"
    )
    parser.add_argument("--rounds", type=int, help="interleaved rounds (default 9, quick 1)")
    parser.add_argument("--lanes", type=int, default=LANES, help=f"runs at a time (default {LANES})")
    parser.add_argument("--peers", default=",".join(PACKAGES), help="who to compare with (default all)")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".bench", help="where peers are installed")
    given = parser.parse_args()
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder, start(Settings(data_dir=Path(folder))) as server:
        client = dial(server.url)
        client.config_set("auto-aof-rewrite-percentage", 0)
        chosen = [peer for peer in PEERS if peer.of in given.peers.split(",")]
        peers = [peer for peer in chosen if knows(client, peer.needs)]
        for peer in chosen:
            if peer not in peers:
                print(f"{peer.name} is left out: this server has no {peer.needs}", file=sys.stderr)
        contenders = [OURS, SYNCED, *peers]
        with seated(contenders, given.cache.absolute(), server.url) as seats:
            seconds, rounds = (0.3, 1) if given.quick else (1.0, 9)
            code = compete(seats, client, given.rounds or rounds, seconds, given.lanes, figures)
        client.config_set("appendfsync", "everysec")
        client.flushall()
        report([contender.name for contender in contenders], figures)
        costs = loop_cost.measure(server.url, client, quick=given.quick)
    loop_cost.report(costs)
    held = bars(peers, figures)
    held = loop_cost.bars(costs) and held
    return code or (0 if held else 1)


if __name__ == "__main__":
    sys.exit(main())

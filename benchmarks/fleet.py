"""What a fleet of workers carries: Postroom against the task queues people use, on one server, in one interleaved run.

    python benchmarks/fleet.py [--quick] [--peers rq,celery,…]

A peer executes no-op jobs and keeps no results. Postroom executes full durable runs of one step: claim, step, commit,
finish, five events, each run on a thread of its own. Every round measures every contender once before the next round
begins, each turn on an empty server; figures are medians over the rounds. Peers are installed on demand, each into an
environment of its own below `.bench/`.
"""

import argparse
import json
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from frame import Column, Figures, bar, cell, install, ratio, table

from postroom.mailbox import keys
from postroom.mailbox.connect import dial
from postroom.mailbox.server import start
from postroom.mailbox.settings import Settings

HERE = Path(__file__).parent
PATIENCE_S = 60.0
NAPS, NAP_S, NAP_LANES = 1_000, 0.2, 256
WARM = 5
OURS, BELLS = "postroom", "doorbells"
# What the benchmark itself asks while it watches.
OUR_OWN = frozenset({"cmdstat_info", "cmdstat_llen", "cmdstat_zcard", "cmdstat_config|set", "cmdstat_flushall"})

_stamp = struct.Struct("dd")


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to run jobs: what to install, how many at a time, and about how many a second, to size the preload."""

    name: str
    packages: tuple[str, ...]
    lanes: int
    about: int
    naps: bool = True


POSTROOM = Contender(OURS, (), 256, 4_000)
PEERS = (
    Contender("rq", ("rq", "hiredis"), 1, 400, naps=False),
    Contender("celery", ("celery[redis]", "hiredis"), 8, 1_000),
    Contender("dramatiq", ("dramatiq[redis]", "hiredis"), 8, 2_000),
    Contender("taskiq", ("taskiq-redis", "hiredis", "uvloop"), 100, 3_000),
    Contender("saq", ("saq[redis]", "typing-extensions", "hiredis", "uvloop"), 100, 2_000),
    Contender("arq", ("arq", "hiredis", "uvloop"), 100, 2_000),
    Contender("streaq", ("streaq", "uvloop"), 100, 1_200),
    Contender("huey", ("huey", "redis", "hiredis"), 8, 2_500),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything: seconds of preloaded work, submissions one by one, starts from idle, rounds."""

    seconds: float
    one_by_one: int
    starts: int
    rounds: int


FULL, QUICK = Sizes(2.0, 2_000, 200, 5), Sizes(1.0, 300, 40, 1)


# -- processes ---------------------------------------------------------------------------------------------------------


@dataclass
class Turn:
    """One contender on an empty server: its workers, its submissions and what they left behind."""

    contender: Contender
    python: Path
    url: str
    client: redis.Redis
    folder: Path
    lanes: int
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def submit(self, kind: str, one_by_one: int, bulk: int) -> dict[str, float]:
        """Seconds for the submissions one by one and, where the peer knows bulk, for those in bulk."""
        found: dict[str, float] = self._ask("submit", kind, one_by_one, bulk)
        return found

    def pace(self, count: int) -> list[float]:
        """When each of some jobs was submitted to an idle worker."""
        found: list[float] = self._ask("pace", count)
        return found

    def hire(self, processes: int) -> None:
        """Starts workers and returns when they have imported everything."""
        command = [self.python, self._script(), "work", self.url, self.lanes]
        if self.contender is POSTROOM:
            place = ["--url", self.url, "--app", "echo_app:app", "--concurrency", self.lanes]
            command = [self.python, "-m", "postroom.worker", "worker", *place]
        words = [str(word) for word in command]
        with (self.folder / "words").open("ab") as said:
            for _ in range(processes):
                self.workers.append(
                    subprocess.Popen(words, env=self._environment(), stdout=said, stderr=said, start_new_session=True)
                )
        self.until(lambda: len(list(self.folder.glob("*.ready"))) == processes)

    def go(self) -> None:
        """Lets the workers begin."""
        (self.folder / "go").touch()

    def dismiss(self) -> None:
        """Ends the workers, with whatever they have started."""
        for worker in self.workers:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()

    def starts(self) -> dict[int, list[tuple[float, float]]]:
        """Per process the times its jobs began, with the CPU time it had used by then."""
        return {int(path.stem): list(_stamp.iter_unpack(path.read_bytes())) for path in self.folder.glob("*.starts")}

    def begun(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob("*.starts")) // _stamp.size

    def until(self, reached: Callable[[], bool], every: float = 0.02) -> None:
        """Waits for a condition, but not for ever and not for a dead worker."""
        end = time.monotonic() + PATIENCE_S
        while not reached():
            if any(worker.poll() is not None for worker in self.workers):
                raise RuntimeError(f"a worker died: {self._last_words()}")
            if time.monotonic() > end:
                raise RuntimeError(f"only {self.begun()} jobs begun in {PATIENCE_S:.0f} s: {self._last_words()}")
            time.sleep(every)

    def _last_words(self) -> str:
        words = (self.folder / "words").read_text(errors="replace").strip()
        return words.rpartition("\n")[2] or "it said nothing"

    def _ask(self, *words: object) -> Any:
        verb, *rest = words
        command = [self.python, self._script(), verb, self.url, *rest]
        done = subprocess.run(
            [str(word) for word in command],
            env=self._environment(),
            stdout=subprocess.PIPE,
            check=True,
            timeout=PATIENCE_S,
        )
        return json.loads(done.stdout)

    def _script(self) -> Path:
        return (
            HERE / "echo_submit.py" if self.contender is POSTROOM else HERE / "peers" / f"with_{self.contender.name}.py"
        )

    def _environment(self) -> dict[str, str]:
        own = {"BENCH_FOLDER": self.folder, "BENCH_URL": self.url, "BENCH_LANES": self.lanes}
        path = f"{HERE}{os.pathsep}{HERE / 'peers'}"
        return {**os.environ, **{name: str(value) for name, value in own.items()}, "PYTHONPATH": path}


class Stage:
    """The server all contenders share, and the interpreters they run on."""

    def __init__(self, url: str, pythons: dict[str, Path]) -> None:
        self.url, self.pythons, self.client = url, pythons, dial(url)
        # A rewrite of the append-only file in the middle of somebody's turn would be charged to that one.
        self.client.config_set("auto-aof-rewrite-percentage", 0)

    @contextmanager
    def turn(self, contender: Contender, lanes: int | None = None) -> Iterator[Turn]:
        """Everything a turn left behind is gone after it."""
        self.client.flushall()
        with tempfile.TemporaryDirectory() as folder:
            python = self.pythons[contender.name]
            turn = Turn(contender, python, self.url, self.client, Path(folder), lanes or contender.lanes)
            try:
                yield turn
            finally:
                turn.dismiss()


# -- measures ----------------------------------------------------------------------------------------------------------


def cpu_of(pid: int) -> float:
    """CPU seconds a process has used so far, in all its threads; Linux lets one read another's clock."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except (OSError, OverflowError):
        return float("nan")


def spent(client: redis.Redis) -> tuple[float, float, float]:
    """What the server has done so far: commands, reads from a socket, CPU seconds."""
    told: dict[str, Any] = client.info("everything")
    calls = sum(stat["calls"] for name, stat in told.items() if name.startswith("cmdstat_") and name not in OUR_OWN)
    return calls, told["total_reads_processed"], told["used_cpu_user"] + told["used_cpu_sys"]


def ends(turn: Turn) -> list[float]:
    """When each job ended. A peer's is taken to end as it begins; a run ends when Redis says it is finished."""
    if turn.contender is not POSTROOM:
        return [at for stamps in turn.starts().values() for at, _ in stamps]
    runs = names_of_runs(turn.client, -1)
    with turn.client.pipeline(transaction=False) as pipe:
        for run in runs:
            pipe.hmget(keys.run(f"thread-{run}", run), "status", "finished")
        records = pipe.execute()
    if any(status != b"done" for status, _ in records):
        raise RuntimeError("a run is not done")
    return [int(finished) / 1000 for _, finished in records]


def names_of_runs(client: redis.Redis, last: int) -> list[str]:
    found: Any = client.zrange(keys.RUNS, 0, last)
    return [name.decode() for name in found]


def all_done(turn: Turn, count: int) -> None:
    turn.until(lambda: turn.begun() >= count)
    if turn.contender is POSTROOM:
        turn.until(lambda: not turn.client.zcard(keys.WATCH), 0.005)


def flow(turn: Turn, kind: str, count: int, processes: int) -> dict[str, float]:
    """Jobs per second of a preloaded queue, counted from when every process was at work, and what one of them cost."""
    turn.hire(processes)
    calls, reads, cpu = spent(turn.client)
    turn.go()
    all_done(turn, count)
    used = {worker.pid: cpu_of(worker.pid) for worker in turn.workers}
    after = spent(turn.client)
    starts, finished = turn.starts(), ends(turn)
    since = max(stamps[0][0] for stamps in starts.values())
    worker_cpu = sum(used[pid] - stamps[0][1] for pid, stamps in starts.items())
    return {
        "rate": sum(at >= since for at in finished) / (max(finished) - since),
        "took": max(finished) - since,
        "worker_cpu": worker_cpu / count * 1e6,
        "server_cpu": (after[2] - cpu) / count * 1e6,
        "commands": (after[0] - calls) / count,
        "reads": (after[1] - reads) / count,
    }


def carry(stage: Stage, contender: Contender, sizes: Sizes, figures: Figures) -> None:
    """Throughput with one and with two processes; the preload is the measure of submitting."""
    count = max(300, int(contender.about * sizes.seconds))
    costs = ("worker_cpu", "server_cpu", "commands", "reads")
    with stage.turn(contender) as turn:
        memory = turn.client.info("memory")["used_memory"]
        took = turn.submit("noop", 0, count)
        if "many" in took:
            figures.add(contender.name, bulk=count / took["many"])
        found = flow(turn, "noop", count, 1)
        turn.dismiss()
        memory = turn.client.info("memory")["used_memory"] - memory
        figures.add(contender.name, one=found["rate"], bytes=memory / count, **{name: found[name] for name in costs})
        if contender is POSTROOM:
            figures.add(OURS, **kept(turn.client))
    few = min(sizes.one_by_one, count)
    with stage.turn(contender) as turn:
        took = turn.submit("noop", few, 2 * count - few)
        figures.add(contender.name, single=few / took["one"], two=flow(turn, "noop", 2 * count, 2)["rate"])


def kept(client: redis.Redis, sample: int = 50) -> dict[str, float]:
    """Bytes of a finished run and of an idle thread, by what the server says of each key."""
    run_bytes, thread_bytes = [], []
    for run in names_of_runs(client, sample - 1):
        thread = f"thread-{run}"
        names = [name.decode() for name in client.scan_iter(f"postroom:{{{thread}}}:*", count=10_000)]
        sizes = {name: client.memory_usage(name, samples=0) or 0 for name in (*names, f"postroom:run:{run}")}
        of_run = sum(size for name, size in sizes.items() if ":run:" in name)
        run_bytes.append(of_run)
        thread_bytes.append(sum(sizes.values()) - of_run)
    return {"run_bytes": statistics.mean(run_bytes), "thread_bytes": statistics.mean(thread_bytes)}


def nap(stage: Stage, contender: Contender, sizes: Sizes, figures: Figures) -> None:
    """Seconds for jobs that only wait, in one process."""
    if not contender.naps:
        return
    with stage.turn(contender, NAP_LANES) as turn:
        turn.submit("nap", 0, NAPS)
        took = flow(turn, "nap", NAPS, 1)["took"]
        # A peer's last nap has only begun.
        figures.add(contender.name, naps=took if contender is POSTROOM else took + NAP_S)


def idle(stage: Stage, contender: Contender, sizes: Sizes, figures: Figures) -> None:
    """Milliseconds from before the submission until the function begins, the worker having nothing else to do."""
    with stage.turn(contender) as turn:
        turn.hire(1)
        turn.go()
        time.sleep(1.0)
        sent = turn.pace(WARM + sizes.starts)
        (begun,) = turn.starts().values()
        waits = [(at - before) * 1e3 for before, (at, _) in zip(sent, begun, strict=True)][WARM:]
        cuts = statistics.quantiles(waits, n=100, method="inclusive")
        figures.add(contender.name, p50=cuts[49], p99=cuts[98])


def bells(stage: Stage, sizes: Sizes, figures: Figures) -> None:
    """Doorbells whose run nobody knows, taken and answered: what the RQ side of a worker costs by itself."""
    count = int(8_000 * sizes.seconds)
    for processes, measure in ((1, "one"), (2, "two")):
        with stage.turn(POSTROOM) as turn:
            turn.submit("bell", 0, count)
            turn.hire(processes)
            before = spent(turn.client)
            turn.go()
            seen: list[tuple[float, int]] = []

            def left(client: redis.Redis = turn.client, seen: list[tuple[float, int]] = seen) -> bool:
                open_ones = int(client.llen("rq:queue:default")) + int(client.zcard("rq:wip:default"))
                if open_ones < count:
                    seen.append((time.time(), open_ones))
                return open_ones == 0

            turn.until(left, 0.005)
            after = spent(turn.client)
            (began, first), (ended, _) = seen[0], seen[-1]
            figures.add(BELLS, **{measure: first / (ended - began)})
            if processes == 1:
                commands, reads, cpu = (later - earlier for later, earlier in zip(after, before, strict=True))
                figures.add(BELLS, commands=commands / count, reads=reads / count, server_cpu=cpu / count * 1e6)


# -- report ------------------------------------------------------------------------------------------------------------

COLUMNS: tuple[Column, ...] = (
    ("one", "jobs/s 1p", "{:,.0f}", False),
    ("two", "jobs/s 2p", "{:,.0f}", False),
    ("single", "submit/s", "{:,.0f}", False),
    ("bulk", "bulk/s", "{:,.0f}", False),
    ("p50", "idle p50 ms", "{:.2f}", True),
    ("p99", "p99 ms", "{:.2f}", True),
    ("naps", "1000 naps s", "{:.2f}", True),
    ("worker_cpu", "cpu µs", "{:.0f}", True),
    ("server_cpu", "server µs", "{:.0f}", True),
    ("commands", "commands", "{:.1f}", True),
    ("reads", "trips", "{:.2f}", True),
    ("bytes", "bytes", "{:,.0f}", True),
)


def report(names: list[str], figures: Figures) -> None:
    """The figures, then each as a multiple of ours."""
    print("\nmedians; cpu of the worker and of the server, commands, round trips and bytes left are per job")
    table(COLUMNS, names, lambda name, column: cell(figures.get(name, column[0]), column[2]))
    print("\nthe same, divided by ours")
    table(
        COLUMNS,
        [name for name in names if name != OURS],
        lambda name, column: cell(ratio(figures.get(name, column[0]), figures.get(OURS, column[0])), "{:.2f}x"),
    )
    run_bytes, thread_bytes = figures.get(OURS, "run_bytes"), figures.get(OURS, "thread_bytes")
    if run_bytes and thread_bytes:
        print(f"\nby MEMORY USAGE a finished run keeps {run_bytes:,.0f} bytes and an idle thread {thread_bytes:,.0f}")


def bars(peers: list[str], figures: Figures) -> None:
    """What Postroom is held to, and where somebody else is ahead."""
    ideal = -(-NAPS // NAP_LANES) * NAP_S
    print(f"\nbars (the ideal for {NAPS} naps of {NAP_S:.1f} s, {NAP_LANES} at a time, is {ideal:.2f} s)")
    bar("doorbells alone ÷ rq SimpleWorker", ratio(figures.get(BELLS, "one"), figures.get("rq", "one")), 20, "rq")
    for measure, words in (("one", "1 process"), ("two", "2 processes")):
        found = figures.best(peers, measure)
        if found:
            bar(f"durable runs ÷ fastest no-op, {words}", ratio(figures.get(OURS, measure), found[0]), 1, found[1])
    bulk, of = min(figures.best(peers, "bulk") or (10_000.0, "10,000/s"), (10_000.0, "10,000/s"))
    bar("submit_many ÷ 10,000/s or best bulk", ratio(figures.get(OURS, "bulk"), bulk), 1, of)
    bar("naps ÷ ideal", ratio(figures.get(OURS, "naps"), ideal), 1.25, "ideal", most=True)
    found = figures.best(peers, "p50", least=True)
    if found:
        bar("idle start p50 ÷ best", ratio(figures.get(OURS, "p50"), found[0]), 1.5, found[1], most=True)
    for measure, heading, pattern, least in COLUMNS:
        ours, found = figures.get(OURS, measure), figures.best(peers, measure, least=least)
        if ours is not None and found and (found[0] < ours if least else found[0] > ours):
            print(f"not first in {heading}: {pattern.format(ours)}, {found[1]} has {pattern.format(found[0])}")


def compete(stage: Stage, contenders: list[Contender], sizes: Sizes, rounds: int, figures: Figures) -> int:
    """Every contender once per round and measure; one that breaks is reported and the others go on."""
    code = 0
    for number in range(1, rounds + 1):
        for measure in (carry, idle, nap):
            for contender in contenders:
                print(f"round {number}: {measure.__name__} {contender.name}", file=sys.stderr)
                try:
                    measure(stage, contender, sizes, figures)
                    if contender is POSTROOM and measure is carry:
                        bells(stage, sizes, figures)
                except (RuntimeError, subprocess.SubprocessError, redis.RedisError) as error:
                    print(f"{contender.name} broke in {measure.__name__}: {error}", file=sys.stderr)
                    code = 1
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="one short round: shows that everything works, proves little"
    )
    parser.add_argument("--rounds", type=int, help="interleaved rounds (default 5, quick 1)")
    parser.add_argument(
        "--peers", default=",".join(peer.name for peer in PEERS), help="who to compare with (default all)"
    )
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".bench", help="where peers are installed")
    given = parser.parse_args()
    sizes = QUICK if given.quick else FULL
    chosen = [peer for peer in PEERS if peer.name in given.peers.split(",")]
    pythons = {peer.name: install(peer.name, peer.packages, given.cache.absolute()) for peer in chosen} | {
        OURS: Path(sys.executable)
    }
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder, start(Settings(data_dir=Path(folder))) as server:
        stage = Stage(server.url, pythons)
        code = compete(stage, [POSTROOM, *chosen], sizes, given.rounds or sizes.rounds, figures)
    report([OURS, BELLS, *(peer.name for peer in chosen)], figures)
    bars([peer.name for peer in chosen], figures)
    return code


if __name__ == "__main__":
    sys.exit(main())

"""What it costs a service to import the client: milliseconds of CPU and modules, beside redis-py and RQ alone.

    python benchmarks/imports.py [--rounds 15]

Each import happens in a fresh interpreter, and the three take turns, so that a noisy moment meets all of them. The time
is taken inside the interpreter, around the import, and counts what this process used, not what it waited for. Figures
are medians; a ratio is that to `import redis` in the same round.
"""

import argparse
import statistics
import subprocess
import sys

NAMES = ("redis", "rq", "postroom.dispatcher")
PROBE = """
import sys, time
before, began = len(sys.modules), time.process_time()
import {name}
print((time.process_time() - began) * 1000, len(sys.modules) - before)
"""


def measure(name: str) -> tuple[float, int]:
    """Milliseconds and modules of one import."""
    command = [sys.executable, "-c", PROBE.format(name=name)]
    took, modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(took), int(modules)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    for name in NAMES:  # once for nothing: the first import of all compiles
        measure(name)
    found = [{name: measure(name) for name in NAMES} for _ in range(rounds)]
    print(f"{'import':<22}{'ms':>8}{'modules':>9}{'to redis':>10}")
    for name in NAMES:
        took = statistics.median(each[name][0] for each in found)
        ratio = statistics.median(each[name][0] / each["redis"][0] for each in found)
        print(f"{name:<22}{took:>8.0f}{found[0][name][1]:>9}{ratio:>10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

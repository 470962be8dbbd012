"""Kill a job between real servers, its workers and the servers, and compare what it wrote with what it should have written.

    python tests/torture/connectors/run.py --kills 30 [--seed S] [--atomic epoch|partition]

The last line is `kills=30 lost=0 duplicated=0`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.servers.packages import UnavailableError
from tests.torture.connectors.campaign import run_campaign


def torture(kills: int, seed: int, *, atomic: str = "epoch", limit_s: float = 1500.0) -> int:
    """The exit code."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:6.1f} s] {text}", flush=True)

    print(f"seed={seed} atomic={atomic}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="penstock-torture-connectors-"))
    try:
        outcome = run_campaign(folder, kills, seed, say, atomic=atomic, limit_s=limit_s)
    except UnavailableError as reason:
        print(f"cannot be run here: {reason}")
        return 2
    by_target = ", ".join(f"{target} {number}" for target, number in sorted(outcome.kills.items()))
    say(f"{outcome.messages} messages; killed: {by_target}")
    for problem in outcome.problems:
        print(f"PROBLEM: {problem}")
    good = not (outcome.problems or outcome.lost or outcome.duplicated)
    if good:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"what is left is in {folder}")
    print(f"kills={sum(outcome.kills.values())} lost={outcome.lost} duplicated={outcome.duplicated}", flush=True)
    return 0 if good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--atomic", choices=("epoch", "partition"), default="epoch")
    given = parser.parse_args()
    return torture(given.kills, random.randrange(1 << 30) if given.seed is None else given.seed, atomic=given.atomic)


if __name__ == "__main__":
    sys.exit(main())

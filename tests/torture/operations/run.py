"""Do to a cluster what happens to clusters, and see whether its jobs get over it by themselves.

    python tests/torture/operations/run.py --faults 30 [--seed S]

The last line is `faults=30 lost=0 duplicated=0 stuck=0`. Linux only. What the processes said is kept if it is not.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.torture.operations.campaign import Campaign


def torture(faults: int, seed: int, *, keep: bool = False) -> int:
    """The exit code. `keep`: what the processes said, even if all went well."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')} {time.monotonic() - began:6.1f} s] {text}", flush=True)

    folder = Path(tempfile.mkdtemp(prefix="penstock-operations-"))
    say(f"seed={seed}; what the processes say is in {folder}")
    outcome = Campaign(folder, seed, faults, say).run()
    if outcome.recoveries:
        worst, blow = max(outcome.recoveries, key=lambda recovery: recovery[0])
        median = statistics.median(seconds for seconds, _ in outcome.recoveries)
        after = " and ".join(map(str, blow))
        say(f"until both jobs had committed anew: median {median:.1f} s, worst {worst:.1f} s, after {after}")
    epochs = ", ".join(f"{name} {number}" for name, number in outcome.epochs.items())
    say(f"events: {outcome.events} for each job; epochs: {epochs}; take-overs: {outcome.take_overs}")
    for problem in outcome.problems:
        print(f"FAILED: {problem}", flush=True)
    if outcome.problems:
        print(f"kept: {folder}; again: make torture-ops FAULTS={faults} SEED={seed}", flush=True)
    elif not keep:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"faults={outcome.faults} lost={outcome.lost} duplicated={outcome.duplicated} stuck={outcome.stuck}",
        flush=True,
    )
    return 1 if outcome.problems or outcome.faults < faults else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", action="store_true", help="keep what the processes said")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # so that what was started is ended too
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1_000_000)
    sys.exit(torture(args.faults, seed, keep=args.keep))


if __name__ == "__main__":
    main()

"""Kill jobs again and again, and compare what they wrote with what they should have written.

    python tests/torture/run.py --kills 50 [--seed S] [--only CAMPAIGN]

The last line is `kills=50 lost=0 duplicated=0`. A driver that is stopped, replaced and woken up counts as a kill.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.torture.campaign import run_campaign
from tests.torture.faults import Campaign, campaigns, shortened
from tests.torture.oracle import JOBS

MOST_FAILURES = 3


def torture(kills: int, seed: int, only: str | None, *, jobs: list[str] | None = None, limit_s: float = 900.0) -> int:
    """The exit code."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:6.1f} s] {text}", flush=True)

    print(f"seed={seed}", flush=True)
    done = lost = duplicated = 0
    failed: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="penstock-torture-"))
    for planned in campaigns(seed, jobs or list(JOBS)):
        if done >= kills or (only is not None and planned.number > int(only.partition("-")[0])):
            break
        if only is not None and planned.name != only:
            continue
        campaign: Campaign = shortened(planned, kills - done)
        say(f"{campaign.name}: {campaign.faults} faults planned")
        outcome = run_campaign(campaign, folder / campaign.name, seed, say, limit_s=limit_s)
        done, lost, duplicated = done + outcome.kills, lost + outcome.lost, duplicated + outcome.duplicated
        say(
            f"{campaign.name}: {outcome.epochs} epochs, {outcome.kills} kills, lost={outcome.lost} "
            f"duplicated={outcome.duplicated}, {outcome.seconds:.0f} s; {done} of {kills} kills"
        )
        for problem in outcome.problems:
            failed.append(campaign.name)
            print(f"FAILED {campaign.name}: {problem}\nkept: {folder / campaign.name}", flush=True)
            print(
                f"again: python tests/torture/run.py --kills {campaign.faults} --seed {seed} --only {campaign.name}", flush=True
            )
        if len(failed) >= MOST_FAILURES:
            print("too many failures: giving up", flush=True)
            break
    print(f"kills={done} lost={lost} duplicated={duplicated}", flush=True)
    return 1 if failed or lost or duplicated else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", metavar="CAMPAIGN", help="one campaign by the name it is printed with")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # so that the drivers are ended too
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1_000_000)
    sys.exit(torture(args.kills, seed, args.only))


if __name__ == "__main__":
    main()

"""Run operator scripts: `python tests/cases/run_scripts.py FILE [--kind K]`.

A line for each failing case, and a last line `N passed, M failed, K skipped`. `--restore-anywhere` repeats each script with a
snapshot and restore after each step: no expectation changes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.cases.assigner_scripts import AssignerRun
from tests.cases.expectations import ExpectationError, NotBuiltError
from tests.cases.harness_scripts import HarnessRun, broadcast, keyed_co_process, keyed_process
from tests.cases.join_scripts import IntervalJoinRun
from tests.cases.training_scripts import TrainingRun
from tests.cases.valve_scripts import ValveRun
from tests.cases.window_scripts import window_harness

Script = dict[str, Any]


class Run(Protocol):
    """A script being run."""

    restorable: bool

    def step(self, step: dict[str, Any]) -> None: ...

    def restore(self) -> None: ...

    def close(self) -> None: ...


BUILDERS: dict[str, Callable[[dict[str, Any]], Run]] = {
    "keyed_process": keyed_process,
    "keyed_co_process": keyed_co_process,
    "broadcast": broadcast,
    "training": TrainingRun,
    "window": lambda operator: HarnessRun(window_harness(operator), beam=operator.get("dialect") == "beam"),
    "interval_join": IntervalJoinRun,
    "assigner": AssignerRun,
    "watermark_valve": ValveRun,
}
"""What can be run, by kind."""


def run_script(script: Script, *, restore_after: int | None = None) -> None:
    """Raise `ExpectationError` where the operator differs; `NotBuiltError` if it cannot be run."""
    kind = script["operator"]["kind"]
    if kind not in BUILDERS:
        raise NotBuiltError("not built yet")
    run = BUILDERS[kind](script["operator"])
    try:
        for number, step in enumerate(script["steps"]):
            try:
                run.step(step)
            except ExpectationError as error:
                raise ExpectationError(f"step {number + 1}: {error}") from error
            if restore_after == number and run.restorable:
                run.restore()
    finally:
        run.close()


def outcomes(scripts: list[Script], *, restore_anywhere: bool = False) -> Iterator[tuple[str, str, str]]:
    """(id, passed | failed | skipped, why) of each script."""
    for script in scripts:
        places = [None, *range(len(script["steps"]))] if restore_anywhere else [None]
        for place in places:
            name = script["id"] if place is None else f"{script['id']}, restored after step {place + 1}"
            try:
                run_script(script, restore_after=place)
            except NotBuiltError as reason:
                yield name, "skipped", str(reason)
                break
            except Exception as error:
                yield name, "failed", f"{type(error).__name__}: {error}"
            else:
                yield name, "passed", ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run operator scripts.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--kind", help="only scripts of this kind")
    parser.add_argument("--restore-anywhere", action="store_true", help="also with a restore after each step")
    options = parser.parse_args(arguments)
    scripts = json.loads(options.file.read_text())["scripts"]
    if options.kind is not None:
        scripts = [script for script in scripts if script["operator"]["kind"] == options.kind]
    tally: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    for name, outcome, why in outcomes(scripts, restore_anywhere=options.restore_anywhere):
        tally[outcome] += 1
        if outcome == "failed":
            print(f"FAILED {name}: {why}")
        elif outcome == "skipped":
            kind = next(s["operator"]["kind"] for s in scripts if s["id"] == name)
            skips[f"{kind}: {why}"] += 1
    for reason, count in sorted(skips.items()):
        print(f"skipped {count}: {reason}")
    print(f"{tally['passed']} passed, {tally['failed']} failed, {tally['skipped']} skipped")
    return 1 if tally["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

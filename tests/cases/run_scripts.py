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

from penstock.errors import PenstockError
from penstock.testing import KeyedHarness, OperatorHarness
from tests.cases.assigner_scripts import AssignerRun
from tests.cases.expectations import ExpectationError, NotBuiltError, compare, compare_number, compare_panes
from tests.cases.script_functions import KEYED, KEYS
from tests.cases.valve_scripts import ValveRun
from tests.cases.window_scripts import window_harness

Script = dict[str, Any]


def keyed_process(operator: dict[str, Any]) -> OperatorHarness:
    function, key = operator["function"], operator["key"]
    if function["name"] not in KEYED:
        raise NotBuiltError(f"no function {function['name']!r} in the runner")
    if key not in KEYS:
        raise NotBuiltError(f"no key selector {key!r} in the runner")
    return KeyedHarness(KEYED[function["name"]](function), KEYS[key], parallelism=operator.get("parallelism", 1))


class HarnessRun:
    """A script on the operator of a keyed step."""

    def __init__(self, harness: OperatorHarness, *, beam: bool = False) -> None:
        self._harness = harness
        self._beam = beam
        self.restorable = not beam

    def close(self) -> None:
        self._harness.close()

    def restore(self) -> None:
        self._harness.restore(self._harness.snapshot())

    def step(self, step: dict[str, Any]) -> None:
        harness = self._harness
        if "element" in step:
            element = step["element"]
            if element.get("input", 0) or "subtask" in step or "raises_inside_function" in step:
                raise NotBuiltError("not built yet: several inputs, subtasks")
            send(harness, element, step.get("raises"))
        elif "watermark" in step:
            harness.watermark(step["watermark"] - self._beam)
        elif "processing_time" in step:
            harness.processing_time(step["processing_time"])
        elif "snapshot_restore" in step:
            options = step["snapshot_restore"]
            harness.restore(harness.snapshot(), parallelism=options.get("parallelism") if isinstance(options, dict) else None)
        elif "end_of_input" in step:
            harness.end()
        elif "expect" in step:
            self._expect(step)
        elif "expect_side" in step:
            compare(step["expect_side"], list(harness.side(step["tag"])), step.get("order", "exact"))
        elif "expect_late" in step:
            compare(step["expect_late"], list(harness.side("late")), step.get("order", "exact"))
        elif "expect_state_entries" in step:
            compare_number(step["expect_state_entries"], harness.state_entries(), "state entries")
        elif "expect_event_timers" in step:
            compare_number(step["expect_event_timers"], harness.event_timers(), "event-time timers")
        elif not IGNORED & step.keys():
            raise NotBuiltError(f"no step {sorted(step)} in the runner")

    def _expect(self, step: dict[str, Any]) -> None:
        events: list[Any] = list(self._harness.take_events())
        ignore = step.get("watermarks") == "ignore"
        if ignore:
            events = [event for event in events if isinstance(event, tuple)]
        if self._beam:
            compare_panes(step["expect"], [event for event in events if isinstance(event, tuple)])
        else:
            compare(step["expect"], events, step.get("order", "exact"), ignore_watermarks=ignore)


class Run(Protocol):
    """A script being run."""

    restorable: bool

    def step(self, step: dict[str, Any]) -> None: ...

    def restore(self) -> None: ...

    def close(self) -> None: ...


BUILDERS: dict[str, Callable[[dict[str, Any]], Run]] = {
    "keyed_process": lambda operator: HarnessRun(keyed_process(operator)),
    "window": lambda operator: HarnessRun(window_harness(operator), beam=operator.get("dialect") == "beam"),
    "assigner": AssignerRun,
    "watermark_valve": ValveRun,
}
"""What can be run, by kind."""

IGNORED = {"end_of_bundle", "inspect"}


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


def send(harness: OperatorHarness, element: dict[str, Any], raises: str | None) -> None:
    try:
        harness.send(element["value"], element["ts"])
    except PenstockError as error:
        if raises is None:
            raise ExpectationError(f"raised {error}") from error
    else:
        if raises is not None:
            raise ExpectationError(f"should have raised: {raises}")


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

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
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from penstock.errors import PenstockError
from penstock.testing import KeyedHarness, OperatorHarness
from tests.cases.script_functions import KEYED, KEYS

Script = dict[str, Any]


class NotBuiltError(Exception):
    """What the script needs is not there yet; the text is the reason."""


class ExpectationError(AssertionError):
    """The operator did something else than the script expects."""


def keyed_process(operator: dict[str, Any]) -> OperatorHarness:
    function, key = operator["function"], operator["key"]
    if function["name"] not in KEYED:
        raise NotBuiltError(f"no function {function['name']!r} in the runner")
    if key not in KEYS:
        raise NotBuiltError(f"no key selector {key!r} in the runner")
    return KeyedHarness(KEYED[function["name"]](function), KEYS[key], parallelism=operator.get("parallelism", 1))


BUILDERS: dict[str, Callable[[dict[str, Any]], OperatorHarness]] = {"keyed_process": keyed_process}
"""What can be run, by kind."""

IGNORED = {"end_of_bundle", "inspect"}


def run_script(script: Script, *, restore_after: int | None = None) -> None:
    """Raise `ExpectationError` where the operator differs; `NotBuiltError` if it cannot be run."""
    kind = script["operator"]["kind"]
    if kind not in BUILDERS:
        raise NotBuiltError("not built yet")
    with BUILDERS[kind](script["operator"]) as harness:
        for number, step in enumerate(script["steps"]):
            try:
                run_step(harness, step)
            except ExpectationError as error:
                raise ExpectationError(f"step {number + 1}: {error}") from error
            if restore_after == number:
                harness.restore(harness.snapshot())


def run_step(harness: OperatorHarness, step: dict[str, Any]) -> None:
    if "element" in step:
        element = step["element"]
        if element.get("input", 0) or "subtask" in step or "raises_inside_function" in step:
            raise NotBuiltError("not built yet: several inputs, subtasks")
        send(harness, element, step.get("raises"))
    elif "watermark" in step:
        harness.watermark(step["watermark"])
    elif "processing_time" in step:
        harness.processing_time(step["processing_time"])
    elif "snapshot_restore" in step:
        options = step["snapshot_restore"]
        harness.restore(harness.snapshot(), parallelism=options.get("parallelism") if isinstance(options, dict) else None)
    elif "end_of_input" in step:
        harness.end()
    elif "expect" in step:
        events: list[Any] = list(harness.take_events())
        if step.get("watermarks") == "ignore":
            events = [event for event in events if isinstance(event, tuple)]
        compare(step["expect"], events, step.get("order", "exact"), ignore_watermarks=step.get("watermarks") == "ignore")
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


def send(harness: OperatorHarness, element: dict[str, Any], raises: str | None) -> None:
    try:
        harness.send(element["value"], element["ts"])
    except PenstockError as error:
        if raises is None:
            raise ExpectationError(f"raised {error}") from error
    else:
        if raises is not None:
            raise ExpectationError(f"should have raised: {raises}")


def compare(expected: list[dict[str, Any]], events: list[Any], order: str, *, ignore_watermarks: bool = False) -> None:
    wanted = [item for item in expected if not (ignore_watermarks and "watermark" in item)]
    if order == "any":
        wanted, events = sorted_between(wanted, is_watermark_item), sorted_between(events, lambda e: not isinstance(e, tuple))
    if len(wanted) != len(events) or not all(matches(item, event) for item, event in zip(wanted, events, strict=True)):
        raise ExpectationError(f"expected {wanted}, got {events}")


def is_watermark_item(item: Any) -> bool:
    return "watermark" in item


def sorted_between(items: list[Any], is_watermark: Callable[[Any], bool]) -> list[Any]:
    """The records between two watermarks in one order."""
    out: list[Any] = []
    run: list[Any] = []
    for item in items:
        if is_watermark(item):
            out += [*sorted(run, key=record_order), item]
            run = []
        else:
            run.append(item)
    return out + sorted(run, key=record_order)


def record_order(item: Any) -> str:
    value = item["value"] if isinstance(item, dict) else item[0]
    return json.dumps(value, sort_keys=True, default=list)


def matches(item: dict[str, Any], event: Any) -> bool:
    if "watermark" in item:
        return not isinstance(event, tuple) and bool(event == item["watermark"])
    if not isinstance(event, tuple):
        return False
    return ("value" not in item or plain(event[0]) == item["value"]) and ("ts" not in item or event[1] == item["ts"])


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=list))


def compare_number(expected: Any, found: int, what: str) -> None:
    right = found > expected["gt"] if isinstance(expected, dict) else found == expected
    if not right:
        raise ExpectationError(f"expected {expected} {what}, got {found}")


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

"""Patterns: Penstock beside Flink SQL's MATCH_RECOGNIZE, on the same events, in CSV files.

5M events of 100k keys over half an hour, up to 2 s out of order, watermarks that allow 5 s, matches within 10 minutes:
- strict: three stages one right after another, the first matched by 1% of the events, conditions over columns;
- selective: the same with anything in between (`A X*? B Y*? C` in SQL);
- dense: three stages one right after another, each matched by half of the events; Penstock's conditions are Python functions.

Matches (key, time of the first event, time of the last one) of both are compared with those that numpy finds. Timed, for each, is
from the first read to the last output committed, without start-up, after the same job over a small input in the same process.
Peak memory is of all processes of a contender while that runs, sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness.contenders import ContenderError, Result, run_contender
from harness.pattern_inputs import SLACK_SECONDS, PatternEvents, pattern_events_of
from harness.pattern_reference import Bounds, check_matches, read_matches, selective_matches, strict_matches
from harness.peers import FLINK, python_of
from harness.places import fresh_folder
from harness.progress import say
from harness.published import published_files
from harness.reference import MismatchError
from harness.report import Report, parser_of, table_of

PROCESSES = 2
EPOCHS = 8
TARGET_EPOCH_SECONDS = 60
FULL_EVENTS, FULL_KEYS = 5_000_000, 100_000
WARM_EVENTS = 200_000
WITHIN_MS = 600_000
TIMEOUT_SECONDS = 1800
CONTENDERS = ("penstock", "flink")


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    stages: Bounds
    reference: Callable[[PatternEvents, Bounds, int], np.ndarray]
    strict: bool = True
    functions: bool = False


ONE_PERCENT: Bounds = ((0, 1), (1, 31), (31, 61))
HALF: Bounds = ((0, 50), (25, 75), (50, 100))
CASES = (
    Case("strict", ONE_PERCENT, strict_matches),
    Case("selective", ONE_PERCENT, selective_matches, strict=False),
    Case("dense", HALF, strict_matches, functions=True),
)


def run_one(case: Case, contender: str, data: PatternEvents, warm: PatternEvents, want: np.ndarray) -> Result:
    """A checked result."""
    folder = fresh_folder("cep", f"{case.name}-{contender}")
    parameters: dict[str, Any] = {
        "stages": case.stages,
        "strict": case.strict,
        "functions": case.functions,
        "within_ms": WITHIN_MS,
        "slack": SLACK_SECONDS,
        "processes": PROCESSES,
        "parallelism": PROCESSES,
        "epochs": EPOCHS,
        "target_epoch": TARGET_EPOCH_SECONDS,
        "folder": str(data.turns if contender == "penstock" else data.sides),
        "warm_folder": str(warm.turns if contender == "penstock" else warm.sides),
        "events": data.events,
        "warm_events": warm.events,
        "out": str(folder),
    }
    label = f"{case.name}, {contender}"
    if contender == "penstock":
        result = run_contender("harness.penstock_patterns", parameters, folder, label=label, timeout=TIMEOUT_SECONDS)
        found = read_matches(published_files(folder / "out"), header=True)
    else:
        python = python_of(FLINK)
        result = run_contender("peers.flink_patterns", parameters, folder, label=label, python=python, timeout=TIMEOUT_SECONDS)
        found = read_matches(_of_flink(folder / "out"), header=False)
    if result["events"] != data.events:
        raise MismatchError(f"{result['events']:,} events read of {data.events:,}")
    check_matches(want, found)
    say(f"{label}: {result['events'] / result['seconds']:,.0f} events/s, {len(found):,} matches checked")
    return result


def _of_flink(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))  # what is not committed has a name that begins with a dot


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--events", type=int, default=FULL_EVENTS, help="fewer: keys in proportion")
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in CASES], default=[case.name for case in CASES])
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    arguments = parser.parse_args()
    data = _input(arguments.events)
    warm = _input(min(WARM_EVENTS, arguments.events))
    report = Report("cep")
    rows: list[list[str]] = []
    for case in CASES:
        if case.name not in arguments.cases:
            continue
        want = case.reference(data, case.stages, WITHIN_MS)
        for contender in arguments.only:
            name = f"{case.name}_{contender}"
            try:
                result = run_one(case, contender, data, warm, want)
            except (ContenderError, MismatchError) as error:
                say(f"{name}: FAILED: {error}")
                report.problems.append(f"{name}: {error}")
                rows.append([case.name, contender, "failed", "", "", ""])
                continue
            report.rates[name] = round(result["events"] / result["seconds"], 1)
            report.details[name] = {**result, "keys": data.keys, "matches": len(want)}
            shown = [f"{len(want):,}", f"{result['seconds']:.2f}", f"{report.rates[name]:,.0f}", _mb(result["peak_memory"])]
            rows.append([case.name, contender, *shown])
        report.ratio(case.name, report.rates.get(f"{case.name}_penstock"), report.rates.get(f"{case.name}_flink"))
    title = f"patterns, {data.events:,} events of {data.keys:,} keys, {PROCESSES} processes"
    table = table_of(title, ["case", "contender", "matches", "seconds", "events/s", "peak MB"], rows)
    return report.finish(table, arguments.json)


def _input(events: int) -> PatternEvents:
    return pattern_events_of(events, max(100, events * FULL_KEYS // FULL_EVENTS))


def _mb(size: int) -> str:
    return f"{size / (1 << 20):,.0f}"


if __name__ == "__main__":
    raise SystemExit(main())

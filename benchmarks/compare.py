"""Is Penstock slower than it was? Its part of the other benchmarks, smaller, with the code here and with that of another commit.

For each benchmark five pairs of runs, in turns (A B, B A, …), each in a process of its own, after a warm-up that does not count,
and with its output checked. The programs are today's on both sides: only Penstock itself is the other commit's, from a worktree
under build/. Every run checks that its driver, Spark's workers and child processes have imported Penstock from where they should.

The medians are compared. What differs by no more than the spread, half of the range of the wider side's runs, counts as the same.
The exit code is 1 if anything is more than 5% worse and that is more than the spread, or if a run failed or its output was wrong.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keyed_process
import latency
import numpy as np
import snapshots
import state_size
import windows
from harness.commits import CommitError, commit_of, described, has_changes, worktree_of
from harness.comparing import Better, Comparison, compare, in_turns
from harness.contenders import ContenderError
from harness.inputs import events_of
from harness.places import SOURCE
from harness.progress import say
from harness.reference import MismatchError
from harness.report import Report, parser_of, table_of

Metrics = dict[str, float]
QUICK = 0.1
ENOUGH_PAIRS = 3
"""With fewer there is no spread to speak of."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A benchmark, of a size that takes seconds; and which of its metrics are better when they are more."""

    run: Callable[[Path, float, Report], Metrics]
    more: tuple[str, ...] = ()

    def better(self, metric: str) -> Better:
        return "more" if metric in self.more else "less"


def run_keyed_process(source: Path, scale: float, report: Report) -> Metrics:
    data, warm = events_of(round(4_000_000 * scale), 10_000), events_of(round(200_000 * scale), 1_000)
    result, problem = keyed_process.run_one(keyed_process.Task("penstock", data, warm, {}, source))
    if result is None:
        raise MismatchError(problem)
    return {"events/s": result["events"] / result["seconds"]}


def run_windows(source: Path, scale: float, report: Report) -> Metrics:
    found = {}
    for case in windows.CASES:
        if case.name in ("low", "session"):
            data, warm = case.input(0.3 * scale), case.input(windows.WARM_EVENTS * scale / case.events)
            result = windows.run_one(windows.Task(case, "penstock", data, warm, source), case.reference(data))
            found[f"{case.name}, events/s"] = result["events"] / result["seconds"]
    return found


def run_latency(source: Path, scale: float, report: Report) -> Metrics:
    seconds = max(2, round(5 * scale))
    parameters = {"rate": 1_000, "seconds": seconds, "warm_seconds": seconds, "keys": 10_000}
    lags = latency.run_penstock("penstock", parameters, report, source) * 1000
    return {"p50 ms": float(np.percentile(lags, 50)), "p99 ms": float(np.percentile(lags, 99))}


def run_snapshots(source: Path, scale: float, report: Report) -> Metrics:
    journey = snapshots.load_save_restore(round(100_000 * scale), report, source)
    return {
        "savepoint s": journey.saved["seconds"],
        "restore s": journey.restored["seconds"],
        "written MB": journey.loaded["written"] / 1e6,
    }


def run_state_size(source: Path, scale: float, report: Report) -> Metrics:
    keys = round(200_000 * scale)
    touched = min(10_000, keys)
    parameters = state_size.parameters_of(keys, -(-keys // touched) * touched, touched, max(5, round(30 * scale)))
    seconds = state_size.run_one("large", parameters, report, source)
    if not seconds:
        raise MismatchError("no epoch was measured")
    return {"epoch ms": statistics.median(seconds) * 1000}


MEASUREMENTS = {
    "keyed_process": Measurement(run_keyed_process, more=("events/s",)),
    "windows": Measurement(run_windows, more=("low, events/s", "session, events/s")),
    "latency": Measurement(run_latency),
    "snapshots": Measurement(run_snapshots),
    "state_size": Measurement(run_state_size),
}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("commit", help="what to compare with: a commit, branch or tag")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each side")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS))
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: to see that it runs, not how fast it is")
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error("--pairs: at least one")
    try:
        commit = commit_of(arguments.commit)
        sources = {"before": worktree_of(commit) / "src", "after": SOURCE}
        sides = {"before": described(commit), "after": described("HEAD") + (", and changes" if has_changes() else "")}
    except CommitError as error:
        parser.error(str(error))

    report = Report("compare")
    rows: list[list[str]] = []
    worse: list[str] = []
    for name in arguments.only:
        measurement = MEASUREMENTS[name]
        found = measured(name, measurement, sources, arguments.pairs, QUICK if arguments.quick else 1.0, report)
        for metric in found["before"]:
            before, after = found["before"][metric], found["after"][metric]
            compared = compare(before, after, measurement.better(metric))
            rows.append(row_of(f"{name}: {metric}", compared))
            enter(report, f"{name}: {metric}", compared, before, after)
            if compared.too_much_worse:
                worse.append(f"{name}: {metric} is {compared.verdict}")
    report.notes += [f"{side}: {text}" for side, text in sides.items()]
    judged = arguments.pairs >= ENOUGH_PAIRS and not arguments.quick
    if not judged:
        report.notes.append("too small, or too few pairs, to judge by: only a failure makes the exit code 1")
    columns = ["metric", "before", "after", "after/before", "spread", "note"]
    code = report.finish(table_of(f"medians of {arguments.pairs} runs each, in turns", columns, rows), arguments.json)
    if not judged:
        return code
    for each in worse:
        print(f"WORSE: {each}")
    return 1 if worse else code


Found = dict[str, dict[str, list[float]]]


def measured(name: str, measurement: Measurement, sources: dict[str, Path], pairs: int, scale: float, report: Report) -> Found:
    """By side and metric the value of each run. A failure ends the benchmark, and leaves nothing of it to compare."""
    found: Found = {side: {} for side in sources}
    for number, pair in enumerate(in_turns(pairs), start=1):
        for side in pair:
            say(f"{name}: pair {number} of {pairs}, {side}")
            problems = len(report.problems)
            try:
                metrics = measurement.run(sources[side], scale, report)
            except (ContenderError, MismatchError) as error:
                report.problems.append(f"{name}, {side}: {error}")
            if len(report.problems) > problems:
                return {side: {} for side in sources}
            for metric, value in metrics.items():
                found[side].setdefault(metric, []).append(value)
    return found


def row_of(metric: str, compared: Comparison) -> list[str]:
    values = (f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" for value in (compared.before, compared.after))
    return [metric, *values, f"{compared.ratio:.3f}", f"± {compared.spread:.1%}", compared.verdict]


def enter(report: Report, metric: str, compared: Comparison, before: list[float], after: list[float]) -> None:
    report.ratios[metric] = round(compared.ratio, 4)
    details: dict[str, Any] = {"before": before, "after": after, "better": compared.better}
    report.details[metric] = {**details, "spread": round(compared.spread, 4), "verdict": compared.verdict}


if __name__ == "__main__":
    raise SystemExit(main())

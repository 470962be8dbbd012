"""Thousands of epochs leave nothing behind: a small keyed job, 3,000 epochs (`--epochs 10000` for more), one after another.

- slowdown: the median of the last 100 epochs over the median of epochs 100 to 200, by the job's own history;
- memory: resident memory of driver, JVM and Python workers together, the median over the last twentieth of the run over the
  median over the twentieth that follows its first fifth (pages that workers share count in each of them);
- open_files, threads: likewise; shuffle_files: files under spark.local.dir, likewise (fewer than ten count as ten). Not among
  the threads are those with which Spark watches Python tasks: each lives up to two seconds longer than its task, so there are as
  many as tasks began in two seconds, and more when epochs are quicker. More than that is a problem;
- live_heap: what is left in the JVM's heap after a garbage collection, at 95% of the run over the same at 20%. These collections
  come just before the two spans of the other figures, so both begin alike.

Every output record is checked at the end.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from harness.contenders import ContenderError, run_contender
from harness.places import fresh_folder
from harness.progress import say
from harness.reference import MismatchError
from harness.report import Report, parser_of, table_of
from latency import check_tiny

KINDS = ("driver", "jvm", "workers")
TASKS = 4
"""Of an epoch: two stages of two partitions."""
WATCHED_SECONDS = 2
"""How long Spark's monitor of a task may outlive it."""
Sample = dict[str, Any]


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--epochs", type=int, default=3_000)
    parser.add_argument("--records", type=int, default=20, help="events in an epoch")
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--sample-seconds", type=float, default=1.0)
    arguments = parser.parse_args()

    report = Report("soak")
    rows: list[list[str]] = []
    folder = fresh_folder("soak", "penstock")
    parameters = {
        "job": "tiny_epochs",
        "epochs": arguments.epochs,
        "records": arguments.records,
        "keys": arguments.keys,
        "sample_seconds": arguments.sample_seconds,
        "collect_at": collect_at(arguments.epochs),
        "out": str(folder),
    }
    try:
        result = run_contender("harness.penstock_jobs", parameters, folder, label="soak", timeout=max(7200, 2 * arguments.epochs))
        check_tiny(folder, parameters)
        say("output checked")
        rows = [epochs_row(result["history"], report), *resource_rows(result["samples"], arguments.epochs, report)]
        before, after = (result["live_heap"][str(epoch)] / (1 << 20) for epoch in collect_at(arguments.epochs))
        report.ratio("live_heap", after, before)
        rows.append(["live heap MB, jvm", f"{before:,.1f}", f"{after:,.1f}", f"{after / before:.3f}"])
    except (ContenderError, MismatchError) as error:
        report.problems.append(str(error))
    title = f"{arguments.epochs:,} epochs of {arguments.records} events"
    return report.finish(table_of(title, ["what", "early", "end", "ratio"], rows), arguments.json)


def collect_at(epochs: int) -> tuple[int, int]:
    return int(0.20 * epochs), int(0.95 * epochs)


def epochs_row(history: list[dict[str, Any]], report: Report) -> list[str]:
    seconds = [epoch["seconds"] for epoch in history]
    part = min(100, max(1, len(seconds) // 10))
    early, last = (statistics.median(each) * 1000 for each in (seconds[part : 2 * part], seconds[-part:]))
    report.ratio("slowdown", last, early)
    report.rates["early_epoch_ms"], report.rates["last_epoch_ms"] = round(early, 1), round(last, 1)
    every = max(1, len(seconds) // 30)
    report.details["median_epoch_ms"] = [
        round(statistics.median(seconds[start : start + every]) * 1000, 1) for start in range(0, len(seconds), every)
    ]
    return ["epoch, median ms", f"{early:.0f}", f"{last:.0f}", f"{report.ratios['slowdown']:.2f}"]


def resource_rows(samples: list[Sample], epochs: int, report: Report) -> list[list[str]]:
    early = [sample for sample in samples if 0.20 * epochs <= sample["mark"] < 0.25 * epochs]
    last = [sample for sample in samples if sample["mark"] >= 0.95 * epochs]
    if not early or not last:
        report.problems.append("too few samples: more epochs, or a smaller --sample-seconds")
        return []
    report.details["samples"] = samples
    rows = []
    for name, what, scale in (("memory", "rss", 1 << 20), ("open_files", "open_files", 1), ("threads", "threads", 1)):
        for kind in (*KINDS, None):
            before, after = (_median(part, _of(what, kind)) / scale for part in (early, last))
            label = f"{name}{' MB' if scale > 1 else ''}, {kind or 'all'}"
            rows.append([label, f"{before:,.0f}", f"{after:,.0f}", f"{after / before:.3f}" if before else ""])
            if kind is None:
                report.ratio(name, after, before)
    rows += thread_rows(early, last, report)
    before, after = (_median(part, lambda sample: sample["files"]) for part in (early, last))
    report.ratio("shuffle_files", max(10, after), max(10, before))
    ratio = report.ratios["shuffle_files"]
    rows.append(["files under spark.local.dir", f"{before:,.0f}", f"{after:,.0f}", f"{ratio:.3f}"])
    return rows


def thread_rows(early: list[Sample], last: list[Sample], report: Report) -> list[list[str]]:
    """The pools that have grown, and the monitors of tasks beside how many there may be."""
    rows = []
    pools = {name for sample in last for name in sample["jvm"]["pools"]}
    for name in sorted(pools):
        before, after = (_median(part, lambda sample, name=name: sample["jvm"]["pools"].get(name, 0)) for part in (early, last))
        if after > before:
            rows.append([f"  threads {name!r}, jvm", f"{before:,.0f}", f"{after:,.0f}", ""])
    before, after = (_median(part, lambda sample: sample["jvm"]["monitors"]) for part in (early, last))
    may_be = [WATCHED_SECONDS * TASKS * _rate(part) for part in (early, last)]
    rows.append(["monitors of tasks, jvm", f"{before:,.0f}", f"{after:,.0f}", ""])
    rows.append(["  tasks in two seconds", f"{may_be[0]:,.0f}", f"{may_be[1]:,.0f}", ""])
    if after > 1.5 * may_be[1] + 2 * TASKS:
        report.problems.append(f"{after:.0f} monitors of tasks, and {may_be[1]:.0f} tasks in two seconds")
    return rows


def _rate(samples: list[Sample]) -> float:
    """Epochs a second."""
    seconds = samples[-1]["at"] - samples[0]["at"]
    return float((samples[-1]["mark"] - samples[0]["mark"]) / seconds) if seconds else 0.0


def _of(what: str, kind: str | None) -> Callable[[Sample], float]:
    return lambda sample: float(sum(sample[each][what] for each in ([kind] if kind else KINDS) if each in sample))


def _median(samples: list[Sample], value: Callable[[Sample], float]) -> float:
    return statistics.median(map(value, samples))


if __name__ == "__main__":
    raise SystemExit(main())

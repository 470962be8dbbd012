"""Event-time windows: Penstock beside Spark's own window aggregation and Flink SQL, on the same events.

Count and sum of each key's windows, exactly once to files. Five cases, all over 200 seconds of event time:
- low: tumbling windows of 10 s, 10k keys, 10M events: 50 events for a key and window;
- high: tumbling windows of 10 s, 500k keys, 10M events: one event for a key and window;
- session: sessions with a gap of 10 s, 500k keys, 2M events: nearly two sessions for a key, of about two events each;
- sliding: windows of 60 s every 10 s, 10k keys, 10M events;
- turns: as low, but files are one after another in time (in the other cases two files at a time are side by side).
`--events` makes all of it smaller, keys too, so that there are as many events for a key and window.

Events are up to 2 s out of order and watermarks allow 5 s: nobody may drop a record, and as every window's count and sum is
checked, nobody does. Spark closes windows only when time moves on: the last event of each input is an hour in the future. The
windows of this event itself, which Spark never emits, do not count. How events are laid out in files: `harness/timed_inputs.py`.

Timed, for each, is from the first read to the last output committed, without start-up, after the same job over a small input in
the same process:
- penstock: from the start of the first epoch to the commit of the last, by the job's own history;
- spark-rocksdb, spark-hdfs (the two state stores): from the trigger of the first micro-batch to the end of the last, by the
  query's own progress; as many micro-batches with data as Penstock has epochs;
- flink: the job's run time as its cluster reports it (the deployment of its tasks is in it, about half a second).
Penstock and Spark read Parquet and write Parquet; flink and penstock-csv read the same two CSV files and write CSV. A ratio named
`…_flink` is of penstock (Parquet) to flink (CSV): what a user of each would choose. One named `…_flink_csv` is of penstock-csv to
flink: both on CSV.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from harness.contenders import ContenderError, Result, run_contender
from harness.peers import FLINK, python_of
from harness.places import fresh_folder
from harness.progress import say
from harness.published import listed_by_spark, published_files
from harness.reference import MismatchError
from harness.report import Report, parser_of, table_of
from harness.timed_inputs import GAP_MS, PARTITIONS, SLACK_SECONDS, SLICES, Layout, Shape, TimedEvents, timed_events_of
from harness.window_reference import (
    SCHEMA,
    aligned_windows,
    check_windows,
    read_headed_csv,
    read_window_csv,
    read_window_parquet,
    session_windows,
)

PROCESSES = 2
EPOCHS = SLICES
"""Penstock's, and micro-batches of Spark, which are of as many files as there are partitions."""
TARGET_EPOCH_SECONDS = 60
FULL_EVENTS = 10_000_000
WARM_EVENTS = 200_000
TIMEOUT_SECONDS = 1800
CONTENDERS = ("penstock", "penstock-csv", "spark-hdfs", "spark-rocksdb", "flink")


@dataclass(frozen=True, slots=True)
class Case:
    """Windows over an input. `events` and `keys` are those of the full size."""

    name: str
    windows: dict[str, Any]
    keys: int
    contenders: tuple[str, ...]
    events: int = FULL_EVENTS
    shape: Shape = "steady"
    layout: Layout = "side by side"

    def input(self, scale: float) -> TimedEvents:
        return timed_events_of(round(self.events * scale), max(100, round(self.keys * scale)), self.shape, self.layout)

    def reference(self, data: TimedEvents) -> pa.Table:
        if self.windows["windows"] == "session":
            return session_windows(data)
        size = self.windows["size"]
        return aligned_windows(data, size * 1000, self.windows.get("slide", size) * 1000)


TUMBLING = {"windows": "tumbling", "size": 10}
CASES = (
    Case("low", TUMBLING, 10_000, CONTENDERS),
    Case("high", TUMBLING, 500_000, ("penstock", "spark-hdfs", "spark-rocksdb")),
    Case(
        "session",
        {"windows": "session", "gap": GAP_MS // 1000},
        500_000,
        ("penstock", "penstock-csv", "spark-rocksdb", "flink"),
        events=2_000_000,
        shape="bursts",
    ),
    Case("sliding", {"windows": "sliding", "size": 60, "slide": 10}, 10_000, ("penstock", "spark-hdfs", "spark-rocksdb")),
    Case("turns", TUMBLING, 10_000, ("penstock", "spark-hdfs", "spark-rocksdb"), layout="in turn"),
)
RATIOS = {
    "low_spark": ("low", "penstock", ("spark-hdfs", "spark-rocksdb")),
    "low_flink": ("low", "penstock", ("flink",)),
    "low_flink_csv": ("low", "penstock-csv", ("flink",)),
    "high_rocksdb": ("high", "penstock", ("spark-rocksdb",)),
    "high_hdfs": ("high", "penstock", ("spark-hdfs",)),
    "session_rocksdb": ("session", "penstock", ("spark-rocksdb",)),
    "session_flink": ("session", "penstock", ("flink",)),
    "session_flink_csv": ("session", "penstock-csv", ("flink",)),
    "sliding_spark": ("sliding", "penstock", ("spark-hdfs", "spark-rocksdb")),
    "turns_spark": ("turns", "penstock", ("spark-hdfs", "spark-rocksdb")),
}
"""Penstock's rate over that of the fastest of these peers; left out unless all of them ran."""


@dataclass(frozen=True, slots=True)
class Task:
    """A contender and what it works on."""

    case: Case
    contender: str
    input: TimedEvents
    warm: TimedEvents
    source: Path | None = None

    @property
    def name(self) -> str:
        return rate_name(self.case.name, self.contender)

    @property
    def label(self) -> str:
        return f"{self.case.name}, {self.contender}"

    def parameters(self, folder: Path) -> dict[str, Any]:
        """What all contenders are told."""
        csv = self.contender in ("flink", "penstock-csv")
        data = (self.input.csv, self.warm.csv) if csv else (self.input.parquet, self.warm.parquet)
        return {
            **self.case.windows,
            "format": "csv" if csv else "parquet",
            "slack": SLACK_SECONDS,
            "processes": PROCESSES,
            "folder": str(data[0]),
            "warm_folder": str(data[1]),
            "events": self.input.events,
            "warm_events": self.warm.events,
            "out": str(folder),
        }


def run_penstock(task: Task, folder: Path) -> tuple[Result, pa.Table]:
    parameters = {
        **task.parameters(folder),
        "parallelism": PROCESSES,
        "epochs": EPOCHS,
        "target_epoch": TARGET_EPOCH_SECONDS,
    }
    result = run_contender(
        "harness.penstock_windows", parameters, folder, label=task.label, source=task.source, timeout=TIMEOUT_SECONDS
    )
    names = ("key", "window_start", "window_end", "count", "total")
    read = read_headed_csv if parameters["format"] == "csv" else read_window_parquet
    return result, read(published_files(folder / "out"), names)


def run_spark(task: Task, folder: Path) -> tuple[Result, pa.Table]:
    store = task.contender.removeprefix("spark-")
    parameters = {**task.parameters(folder), "store": store, "files_per_batch": PARTITIONS * SLICES // EPOCHS}
    result = run_contender("peers.spark_windows", parameters, folder, label=task.label, timeout=TIMEOUT_SECONDS)
    return result, read_window_parquet(listed_by_spark(folder / "out"), SCHEMA.names)


def run_flink(task: Task, folder: Path) -> tuple[Result, pa.Table]:
    python = python_of(FLINK)
    result = run_contender(
        "peers.flink_windows", task.parameters(folder), folder, label=task.label, python=python, timeout=TIMEOUT_SECONDS
    )
    # What is not committed has a name that begins with a dot.
    return result, read_window_csv(sorted((folder / "out").glob("part-*")))


RUNS = {
    "penstock": run_penstock,
    "penstock-csv": run_penstock,
    "spark-hdfs": run_spark,
    "spark-rocksdb": run_spark,
    "flink": run_flink,
}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--events", type=int, default=FULL_EVENTS, help="of the cases with 10M events; the others in proportion")
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in CASES], default=[case.name for case in CASES])
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--runs", type=int, default=1, help="runs of each contender; the median counts")
    arguments = parser.parse_args()

    report = Report("windows")
    rows: list[list[str]] = []
    for case in CASES:
        contenders = [name for name in case.contenders if name in arguments.only]
        if case.name not in arguments.cases or not contenders:
            continue
        data = case.input(arguments.events / FULL_EVENTS)
        warm = case.input(WARM_EVENTS / case.events)
        want = case.reference(data)
        for name in contenders:
            rate, seconds = run_median(Task(case, name, data, warm), want, arguments.runs, report)
            rows.append([case.name, name, f"{data.keys:,}", f"{data.events:,}", f"{want.num_rows:,}", seconds, rate])
    for ratio, (case_name, ours, peers) in RATIOS.items():
        rates = [report.rates.get(rate_name(case_name, peer)) for peer in peers]
        if all(rates):
            report.ratio(ratio, report.rates.get(rate_name(case_name, ours)), max(rate for rate in rates if rate))
    table = table_of(
        f"event-time windows, {PROCESSES} processes",
        ["case", "contender", "keys", "events", "windows", "seconds", "events/s"],
        rows,
    )
    return report.finish(table, arguments.json)


def run_median(task: Task, want: pa.Table, runs: int, report: Report) -> tuple[str, str]:
    """Runs, checks, and enters the median rate; what to show of it."""
    results: list[Result] = []
    for _ in range(runs):
        try:
            results.append(run_one(task, want))
        except (ContenderError, MismatchError) as error:
            say(f"{task.label}: FAILED: {error}")
            report.problems.append(f"{task.label}: {error}")
            return "failed", ""
    results.sort(key=lambda result: float(result["seconds"]))
    median = results[len(results) // 2]
    rate = median["events"] / median["seconds"]
    report.rates[task.name] = round(rate, 1)
    all_seconds = [round(result["seconds"], 3) for result in results]
    report.details[task.name] = {**median, "keys": task.input.keys, "windows": want.num_rows, "all_seconds": all_seconds}
    return f"{rate:,.0f}", f"{median['seconds']:.2f}"


def run_one(task: Task, want: pa.Table) -> Result:
    """A checked result."""
    result, output = RUNS[task.contender](task, fresh_folder("windows", f"{task.case.name}-{task.contender}"))
    if result["events"] != task.input.events:
        raise MismatchError(f"{result['events']:,} events read of {task.input.events:,}")
    check_windows(want, output)
    say(f"{task.label}: {result['events'] / result['seconds']:,.0f} events/s, output checked")
    return result


def rate_name(case: str, contender: str) -> str:
    return f"{case}_{contender.replace('-', '_')}"


if __name__ == "__main__":
    raise SystemExit(main())

"""Joins: Penstock beside Spark's own, on the same input, exactly once to files.

- interval: two streams of 1M events each over ten minutes of event time, 50k keys; pairs of one key not more than five
  seconds apart: about 330k. The peer is Spark's stream–stream join, with the state store that is faster for it.
- static: 2M events, each with the row of its key from a table of 100k rows, if there is one (left outer). The peer is Spark's
  stream–static join with a broadcast hint.
- async: 20,000 calls of 10 ms to another system, 100 at once: the time over the ideal of 2 s, by `async_io.py`. There is no peer.

`--events` makes all of it smaller, keys too.

Timed, for each, is from the first read to the last output committed, without start-up, after the same job over a small input
in the same process, by the job's own history (Penstock) or the query's own progress (Spark), which has as many micro-batches
with data as Penstock has epochs. All outputs are compared with what numpy makes of the input files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from harness.contenders import ContenderError, Result, run_contender
from harness.join_inputs import BOUND_MS, PARTITIONS, SLACK_SECONDS, SLICES, LookupInput, PairInput, lookups_of, matches, pairs_of
from harness.places import fresh_folder
from harness.progress import say
from harness.published import listed_by_spark, published_files
from harness.reference import MismatchError, check_same
from harness.report import Report, parser_of, table_of

PROCESSES = 2
EPOCHS = SLICES
TARGET_EPOCH_SECONDS = 60
TIMEOUT_SECONDS = 1800
STORES = ("spark-hdfs", "spark-rocksdb")


@dataclass(frozen=True, slots=True)
class Case:
    """`make(scale)`: the input at that part of its full size. `check(input, output)` raises `MismatchError`, or says how many
    results there are."""

    name: str
    contenders: tuple[str, ...]
    make: Callable[[float], Any]
    check: Callable[[Any, pa.Table], int]
    warm: float = 0.1


def _pairs(scale: float) -> PairInput:
    return pairs_of(round(1_000_000 * scale), max(100, round(50_000 * scale)))


def _lookups(scale: float) -> LookupInput:
    return lookups_of(round(2_000_000 * scale), max(100, round(100_000 * scale)))


def check_pairs(data: PairInput, output: pa.Table) -> int:
    """Each pair once and no other."""
    want = matches(data)
    left, right = (output[name].to_numpy() for name in ("left", "right"))
    order = np.lexsort((right, left))
    check_same("left", left[order], want[:, 0])
    check_same("right", right[order], want[:, 1])
    return len(want)


def check_lookups(data: LookupInput, output: pa.Table) -> int:
    """Each event once, with the row of its key."""
    events, table = data.read(), pq.read_table(data.table)
    output = output.sort_by("v")
    check_same("events", output["v"].to_numpy(), events["v"].sort().to_numpy())
    key = events.sort_by("v")["key"]
    check_same("keys", output["key"].to_numpy(), key.to_numpy())
    rows = pa.compute.index_in(key, value_set=table["key"])
    for name in ("name", "weight"):
        if not output[name].combine_chunks().equals(table[name].combine_chunks().take(rows.combine_chunks())):
            raise MismatchError(f"{name}: not those of the table")
    return len(key)


CASES: dict[str, Case] = {
    "interval": Case("interval", ("penstock", *STORES), _pairs, check_pairs),
    "static": Case("static", ("penstock", "spark-hdfs"), _lookups, check_lookups),
}
"""Each case is here, by name; its ratio is `<name>_spark`, Penstock's rate over that of the fastest peer."""


ASYNC = "async"
CALLS = 20_000


@dataclass(frozen=True, slots=True)
class Task:
    """A contender and what it works on."""

    case: Case
    contender: str
    input: Any
    warm: Any

    @property
    def label(self) -> str:
        return f"{self.case.name}, {self.contender}"

    def parameters(self, folder: Path) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "slack": SLACK_SECONDS,
            "bound_ms": BOUND_MS,
            "processes": PROCESSES,
            "parallelism": PROCESSES,
            "epochs": EPOCHS,
            "target_epoch": TARGET_EPOCH_SECONDS,
            "folder": str(self.input.folder),
            "warm_folder": str(self.warm.folder),
            "events": self.input.events,
            "warm_events": self.warm.events,
            "out": str(folder),
        }


def run_penstock(task: Task, folder: Path) -> tuple[Result, pa.Table]:
    result = run_contender("harness.penstock_joins", task.parameters(folder), folder, label=task.label, timeout=TIMEOUT_SECONDS)
    return result, read_tables(published_files(folder / "out"))


def run_spark(task: Task, folder: Path) -> tuple[Result, pa.Table]:
    files = PARTITIONS * SLICES // EPOCHS
    parameters = {**task.parameters(folder), "store": task.contender.removeprefix("spark-"), "files_per_batch": files}
    result = run_contender("peers.spark_joins", parameters, folder, label=task.label, timeout=TIMEOUT_SECONDS)
    return result, read_tables(listed_by_spark(folder / "out"))


def read_tables(paths: Sequence[Path]) -> pa.Table:
    tables = [pq.ParquetFile(path).read() for path in paths]
    return pa.concat_tables([table for table in tables if table.num_rows], promote_options="default")


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--events", type=int, default=2_000_000, help="of each case; keys in proportion")
    parser.add_argument("--cases", nargs="+", choices=[*CASES, ASYNC], default=[*CASES, ASYNC])
    parser.add_argument("--only", nargs="+", choices=("penstock", *STORES), default=["penstock", *STORES])
    parser.add_argument("--runs", type=int, default=1, help="runs of each contender; the median counts")
    arguments = parser.parse_args()

    report = Report("joins")
    rows: list[list[str]] = []
    for case in (CASES[name] for name in arguments.cases if name in CASES):
        scale = arguments.events / 2_000_000
        data, warm = case.make(scale), case.make(scale * case.warm)
        rows += [
            run_median(Task(case, name, data, warm), arguments.runs, report) for name in case.contenders if name in arguments.only
        ]
        peers = [rate for peer in case.contenders[1:] if (rate := report.rates.get(f"{case.name}_{peer.replace('-', '_')}"))]
        if len(peers) == len(case.contenders) - 1:
            report.ratio(f"{case.name}_spark", report.rates.get(f"{case.name}_penstock"), max(peers))
    if ASYNC in arguments.cases and "penstock" in arguments.only:
        rows.append(run_async(round(CALLS * arguments.events / 2_000_000), arguments.runs, report))
    columns = ["case", "contender", "keys", "events", "results", "seconds", "events/s"]
    return report.finish(table_of(f"joins, {PROCESSES} processes", columns, rows), arguments.json)


def run_async(calls: int, runs: int, report: Report) -> list[str]:
    """Asks, and enters the median of the times over the ideal; answers and how many were under way are checked there."""
    try:
        parameters = {"calls": max(100, calls), "runs": max(3, runs)}
        found = run_contender(
            "harness.penstock_async", parameters, fresh_folder("joins", ASYNC), label=ASYNC, timeout=TIMEOUT_SECONDS
        )
    except ContenderError as error:
        say(f"{ASYNC}: FAILED: {error}")
        report.problems.append(f"{ASYNC}: {error}")
        return [ASYNC, "penstock", "", f"{calls:,}", "", "", "failed"]
    report.ratios[ASYNC] = round(found["async"], 3)
    report.details[ASYNC] = found
    return [ASYNC, "penstock", "", f"{calls:,}", f"{calls:,}", f"{found['seconds']:.2f}", f"{calls / found['seconds']:,.0f}"]


def run_median(task: Task, runs: int, report: Report) -> list[str]:
    """Runs, checks, and enters the median rate; what to show of it."""
    shown = [task.case.name, task.contender, f"{task.input.keys:,}", f"{task.input.events:,}"]
    results: list[Result] = []
    found = 0
    for _ in range(runs):
        try:
            result, output = (run_penstock if task.contender == "penstock" else run_spark)(
                task, fresh_folder("joins", f"{task.case.name}-{task.contender}")
            )
            found = task.case.check(task.input, output)
        except (ContenderError, MismatchError) as error:
            say(f"{task.label}: FAILED: {error}")
            report.problems.append(f"{task.label}: {error}")
            return [*shown, "", "", "failed"]
        say(f"{task.label}: {result['events'] / result['seconds']:,.0f} events/s, {found:,} results, checked")
        results.append(result)
    results.sort(key=lambda result: float(result["seconds"]))
    median = results[len(results) // 2]
    rate, name = median["events"] / median["seconds"], f"{task.case.name}_{task.contender.replace('-', '_')}"
    report.rates[name] = round(rate, 1)
    all_seconds = [round(result["seconds"], 3) for result in results]
    report.details[name] = {**median, "results": found, "all_seconds": all_seconds}
    return [*shown, f"{found:,}", f"{median['seconds']:.2f}", f"{rate:,.0f}"]


if __name__ == "__main__":
    raise SystemExit(main())

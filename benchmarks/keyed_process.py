"""Keyed state at full speed: Penstock beside transformWithState, Bytewax and a bare loop, on the same Parquet files.

Each event updates its key's value state (count, sum) and gives an output record (key, count, sum). Penstock, transformWithState
and Bytewax keep state durably and write each record exactly once to files; the bare loop keeps everything in memory.

Each contender runs `--runs` times where that is quick (below 200k keys), otherwise once; the median counts. Timed, for each, is
from the first record read to the last output committed, without start-up:
- penstock: from the start of the first epoch with input to the commit of the last, by the job's own history, after a small job
  has run in the same process and session;
- tws: from the trigger of the first micro-batch to the end of the last, by the query's progress, after the same query over a
  small input in the same session;
- bytewax: from the first read to the end of the dataflow, its last snapshot included;
- bare: from the moment two warm processes are let go to the end of the later one.

transformWithState with 500k keys would take a quarter of an hour: it gets every tenth key, with all events of these keys, so
that a micro-batch has as many events for a key as with all of them, and a tenth of the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from harness.contenders import ContenderError, Result, run_contender
from harness.inputs import FILES, Events, events_of
from harness.peers import BYTEWAX, SPARK, python_of
from harness.places import fresh_folder
from harness.progress import say
from harness.published import listed_by_spark, published_files
from harness.reference import MismatchError, check_running_sums, check_totals, read_csv_files, read_parquet_files
from harness.report import Report, parser_of, table_of

PROCESSES = 2
BATCHES = 2
"""Micro-batches of transformWithState; Penstock has as many epochs."""
TARGET_EPOCH_SECONDS = 10
SAMPLED_FROM = 200_000
"""With this many keys or more, transformWithState gets a sample of the keys."""
WARM_EVENTS = 200_000
CONTENDERS = ("penstock", "penstock-function", "tws", "bytewax", "bare")


@dataclass(frozen=True, slots=True)
class Task:
    """A contender and what it works on."""

    name: str
    input: Events
    warm: Events
    options: dict[str, Any]
    source: Path | None = None


def run_penstock(task: Task, folder: Path) -> tuple[Result, pa.Table]:
    parameters = {
        "job": "keyed_process",
        "folder": str(task.input.folder),
        "warm_folder": str(task.warm.folder),
        "events": task.input.events,
        "by_function": task.name == "penstock-function",
        "parallelism": PROCESSES,
        "epochs": BATCHES,
        "target_epoch": TARGET_EPOCH_SECONDS,
        "out": str(folder),
    }
    result = run_contender("harness.penstock_jobs", parameters, folder, label=_label(task), source=task.source)
    return result, read_parquet_files(published_files(folder / "out"))


def run_tws(task: Task, folder: Path) -> tuple[Result, pa.Table]:
    parameters = {
        "folder": str(task.input.folder),
        "warm_folder": str(task.warm.folder),
        "files_per_batch": FILES // BATCHES,
        "processes": PROCESSES,
        "api": task.options["tws_api"],
        "java_options": task.options["tws_java_options"],
        "out": str(folder),
    }
    python = python_of(SPARK)
    result = run_contender("peers.transform_with_state", parameters, folder, label=_label(task), python=python)
    return result, read_parquet_files(listed_by_spark(folder / "out"))


def run_bytewax(task: Task, folder: Path) -> tuple[Result, pa.Table]:
    out = folder / "out"
    out.mkdir()
    parameters = {
        "files": [str(path) for path in task.input.files],
        "events": task.input.events,
        "processes": PROCESSES,
        "batch": task.options["bytewax_batch"],
        "out": str(out),
    }
    python = python_of(BYTEWAX)
    result = run_contender("peers.bytewax_cluster", parameters, folder, label=_label(task), python=python)
    return result, read_csv_files(sorted(out.iterdir()))


def run_bare(task: Task, folder: Path) -> tuple[Result, pa.Table]:
    out = folder / "out"
    out.mkdir()
    parameters = {
        "files": [str(path) for path in task.input.files],
        "warm": [str(task.warm.files[0])],
        "processes": PROCESSES,
        "out": str(out),
    }
    result = run_contender("peers.bare_loop", parameters, folder, label=_label(task))
    parts = read_parquet_files(sorted(out.glob("*.parquet")))
    totals = parts.group_by("key").aggregate([("count", "sum"), ("sum", "sum")])
    return result, totals.rename_columns({"count_sum": "count", "sum_sum": "sum"})


RUNS = {"penstock": run_penstock, "penstock-function": run_penstock, "tws": run_tws, "bytewax": run_bytewax, "bare": run_bare}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 500_000])
    parser.add_argument(
        "--runs", type=int, default=3, help="with fewer than 200k keys: runs of each contender; the median counts"
    )
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--tws-api", choices=("rows", "pandas"), default="rows")
    parser.add_argument("--tws-java-options", default="", metavar="TEXT", help="for its JVM; write --tws-java-options=-X...")
    parser.add_argument("--tws-every", type=int, default=10, help="with 200k keys or more: every n-th key for tws; 1 for all")
    parser.add_argument("--bytewax-batch", type=int, default=1000, help="records a Bytewax source hands over at a time")
    arguments = parser.parse_args()
    options = {
        "tws_api": arguments.tws_api,
        "tws_java_options": arguments.tws_java_options,
        "bytewax_batch": arguments.bytewax_batch,
    }

    report = Report("keyed_process")
    rows: list[list[str]] = []
    warm = events_of(WARM_EVENTS, 1_000)
    for keys in arguments.keys:
        whole = events_of(arguments.events, keys)
        for name in CONTENDERS:
            if name not in arguments.only:
                continue
            note, data = "", whole
            if name == "tws" and keys >= SAMPLED_FROM and arguments.tws_every > 1:
                data = events_of(arguments.events, keys, every=arguments.tws_every)
                note = f"every {arguments.tws_every}th key: {data.events:,} events"
                report.notes.append(f"tws with {keys:,} keys ran on {note}, all of the events of these keys")
            runs = arguments.runs if keys < SAMPLED_FROM else 1
            rate, seconds = run_median(Task(name, data, warm, options), runs, report)
            rows.append([name, f"{keys:,}", f"{data.events:,}", seconds, rate, note])
    for keys in arguments.keys:
        ratios_of(report, keys)
    table = table_of(
        f"keyed process function, {arguments.events:,} events, {PROCESSES} processes",
        ["contender", "keys", "events", "seconds", "events/s", "note"],
        rows,
    )
    return report.finish(table, arguments.json)


def run_median(task: Task, runs: int, report: Report) -> tuple[str, str]:
    """Runs, checks, and enters the median rate; what to show of it."""
    results: list[Result] = []
    for _ in range(runs):
        result, problem = run_one(task)
        if result is None:
            report.problems.append(problem)
            return "failed", ""
        results.append(result)
    results.sort(key=lambda result: float(result["seconds"]))
    median = results[len(results) // 2]
    rate = median["events"] / median["seconds"]
    name = f"{task.name.replace('-', '_')}_{short(task.input.keys)}"
    report.rates[name] = round(rate, 1)
    all_seconds = [round(result["seconds"], 3) for result in results]
    report.details[name] = {**median, "keys": task.input.keys, "key_sample": task.input.every, "all_seconds": all_seconds}
    return f"{rate:,.0f}", f"{median['seconds']:.2f}"


def run_one(task: Task) -> tuple[Result | None, str]:
    """A checked result; or none, and the reason."""
    label = _label(task)
    try:
        result, output = RUNS[task.name](task, fresh_folder("keyed_process", f"{task.name}-{short(task.input.keys)}"))
    except ContenderError as error:
        return None, str(error)
    try:
        if result["events"] != task.input.events:
            raise MismatchError(f"{result['events']:,} events read of {task.input.events:,}")
        (check_totals if task.name == "bare" else check_running_sums)(*task.input.read(), output)
    except MismatchError as error:
        say(f"{label}: WRONG OUTPUT: {error}")
        return None, f"{label}: {error}"
    say(f"{label}: {result['events'] / result['seconds']:,.0f} events/s, output checked")
    return result, ""


def ratios_of(report: Report, keys: int) -> None:
    size = short(keys)
    rates = report.rates
    for peer in ("tws", "bytewax", "bare"):
        report.ratio(f"{peer}_{size}", rates.get(f"penstock_{size}"), rates.get(f"{peer}_{size}"))
    report.ratio(f"bytewax_{size}_function", rates.get(f"penstock_function_{size}"), rates.get(f"bytewax_{size}"))


def short(keys: int) -> str:
    """10k for 10,000."""
    return f"{keys // 1000}k" if keys % 1000 == 0 else str(keys)


def _label(task: Task) -> str:
    return f"{task.name}, {task.input.keys:,} keys"


if __name__ == "__main__":
    raise SystemExit(main())

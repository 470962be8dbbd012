"""From event to committed output: Penstock beside Spark's own streaming aggregation, 1,000 events a second; and an epoch's floor.

Both count events by key (10k keys) and write JSON files. Both run for a while to get warm; then 30 seconds count, every event.

- penstock: from the moment event n was due, by the generator's position, to the moment its epoch's entry was in the sink's log,
  or to the commit that the job's history reports, whichever is later;
- spark: from the event's time to the end of the write of its micro-batch, in update mode with trigger 0 (Spark's commit log,
  written after that, is not counted), from two sources. `rate`, Spark's own, hands out whole seconds, which makes an event wait
  half a second on average: ratios p50 and p99. `socket` has no such wait: ratios p50_socket and p99_socket.

`floor`: the median of a warm epoch of a few events (state, output and manifest made durable) over the median of the plainest
two-stage RDD job, which does nothing, each on a session of the same settings.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness.contenders import ContenderError, run_contender
from harness.places import fresh_folder
from harness.progress import say
from harness.published import published_json
from harness.reference import MismatchError, check_counts, check_last_counts
from harness.report import Report, parser_of, table_of

CONTENDERS = ("penstock", "rate", "socket", "floor")


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rate", type=int, default=1_000, help="events a second")
    parser.add_argument("--seconds", type=int, default=30, help="measured seconds")
    parser.add_argument("--warm-seconds", type=int, default=20, help="seconds before them")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--floor-epochs", type=int, default=100, help="measured epochs and jobs for the floor")
    parser.add_argument("--floor-warm", type=int, default=150, help="epochs and jobs before them")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    arguments = parser.parse_args()
    parameters = {name: getattr(arguments, name) for name in ("rate", "seconds", "warm_seconds", "keys")}

    report = Report("latency")
    rows: list[list[str]] = []
    middle: dict[str, float] = {}
    high: dict[str, float] = {}
    for name in ("penstock", "rate", "socket"):
        if name not in arguments.only:
            continue
        lags = attempt(name, report, run_penstock if name == "penstock" else run_spark, name, parameters)
        if lags is None:
            continue
        expected = arguments.rate * arguments.seconds
        if len(lags) < expected:
            report.problems.append(f"{name}: only {len(lags):,} of {expected:,} events were measured")
        middle[name], high[name] = (float(np.percentile(lags, q)) * 1000 for q in (50, 99))
        report.rates[f"{name}_p50_ms"], report.rates[f"{name}_p99_ms"] = round(middle[name], 1), round(high[name], 1)
        shown = "penstock" if name == "penstock" else f"spark, {name} source"
        rows.append([shown, f"{len(lags):,}", f"{middle[name]:.0f}", f"{high[name]:.0f}", f"{max(lags) * 1000:.0f}"])
    for peer, suffix in (("rate", ""), ("socket", "_socket")):
        report.ratio(f"p50{suffix}", middle.get("penstock"), middle.get(peer))
        report.ratio(f"p99{suffix}", high.get("penstock"), high.get(peer))
    if "floor" in arguments.only:
        rows += floor_of(arguments.floor_epochs, arguments.floor_warm, report)
    report.notes.append("Spark's rate source hands out whole seconds: half a second of its latency is the source's own")
    title = f"event to committed output, {arguments.rate:,} events/s for {arguments.seconds} s"
    return report.finish(table_of(title, ["contender", "measured", "p50 ms", "p99 ms", "longest ms"], rows), arguments.json)


def attempt(label: str, report: Report, function: Any, *arguments: Any) -> Any:
    """The function's result; None, and a problem in the report, if it failed or its output was wrong."""
    try:
        return function(*arguments, report)
    except (ContenderError, MismatchError) as error:
        report.problems.append(f"{label}: {error}")
        return None


def run_penstock(name: str, parameters: dict[str, Any], report: Report, source: Path | None = None) -> np.ndarray:
    """The lag of each measured event, in seconds."""
    folder = fresh_folder("latency", name)
    request = {"job": "latency", **parameters, "out": str(folder)}
    result = run_contender("harness.penstock_jobs", request, folder, label=name, source=source)
    table, publications = published_json(folder / "out", ["key", "count", "n"])
    numbers = table["n"].to_numpy()
    events = parameters["rate"] * (parameters["warm_seconds"] + parameters["seconds"])
    if not np.array_equal(np.sort(numbers), np.arange(events)):
        raise MismatchError("the output does not have every event once")
    check_counts(keys_of(events, parameters["keys"]), table)
    committed = {epoch["epoch"]: epoch["committed_ms"] / 1000 for epoch in result["history"]}
    visible = np.array([max(each.visible, committed[each.epoch]) for each in publications])
    due = result["start_ms"] / 1000 + (numbers + 1) / parameters["rate"]
    lags = visible[table["publication"].to_numpy()] - due
    measured: np.ndarray = lags[numbers >= parameters["warm_seconds"] * parameters["rate"]]
    epochs = [epoch["seconds"] for epoch in result["history"]]
    report.details[name] = {"epochs": len(epochs), "median_epoch_ms": round(statistics.median(epochs) * 1000, 1)}
    say(f"{name}: output checked, {len(epochs)} epochs")
    return measured


def run_spark(name: str, parameters: dict[str, Any], report: Report) -> np.ndarray:
    folder = fresh_folder("latency", f"spark-{name}")
    request = {**parameters, "source": name, "out": str(folder / "out")}
    result = run_contender("peers.spark_aggregation", request, folder, label=f"spark, {name} source")
    key, count = zip(*result["counts"], strict=True)
    check_last_counts(keys_of(result["events"], parameters["keys"]), pa.table({"key": pa.array(key), "count": pa.array(count)}))
    report.details[name] = {"micro_batches": result["batches"]}
    say(f"spark, {name} source: output checked, {result['batches']} micro-batches")
    return np.array(result["lags"])


def keys_of(events: int, keys: int) -> np.ndarray:
    return np.arange(events) * 7919 % keys


def floor_of(epochs: int, warm: int, report: Report) -> list[list[str]]:
    medians: dict[str, float] = {}
    rows = []
    for name, run in (("tiny epoch", tiny_epochs), ("plain RDD job", plain_jobs)):
        seconds: Sequence[float] | None = attempt(name, report, run, epochs, warm)
        if seconds:
            medians[name] = statistics.median(seconds)
            report.rates[f"{name.replace(' ', '_').lower()}_ms"] = round(medians[name] * 1000, 1)
            high = float(np.percentile(seconds, 99))
            shown = (f"{each * 1000:.0f}" for each in (medians[name], high, max(seconds)))
            rows.append([name, str(len(seconds)), *shown])
    report.ratio("floor", medians.get("tiny epoch"), medians.get("plain RDD job"))
    return rows


def tiny_epochs(epochs: int, warm: int, report: Report) -> list[float]:
    folder = fresh_folder("latency", "tiny")
    parameters = {"job": "tiny_epochs", "records": 10, "epochs": epochs + warm, "keys": 1_000, "out": str(folder)}
    history = run_contender("harness.penstock_jobs", parameters, folder, label="tiny epochs")["history"]
    check_tiny(folder, parameters)
    ends = [epoch["committed_ms"] for epoch in history[warm:]]
    period = statistics.median(later - earlier for earlier, later in itertools.pairwise(ends)) if len(ends) > 1 else None
    report.details["tiny epochs"] = {"epochs": len(history), "median_period_ms": period}
    return [epoch["seconds"] for epoch in history[warm:]]


def check_tiny(folder: Path, parameters: dict[str, Any]) -> None:
    """The output of `penstock_jobs.tiny_epochs`: each event once, counted once."""
    table, _ = published_json(folder / "out", ["key", "count", "n"])
    events = parameters["records"] * parameters["epochs"]
    if not np.array_equal(np.sort(table["n"].to_numpy()), np.arange(events)):
        raise MismatchError("the output does not have every event once")
    check_counts(keys_of(events, parameters["keys"]), table)


def plain_jobs(jobs: int, warm: int, report: Report) -> list[float]:
    folder = fresh_folder("latency", "rdd")
    parameters = {"master": "local[2,4]", "jobs": jobs, "warm": warm}
    seconds: list[float] = run_contender("peers.rdd_floor", parameters, folder, label="plain RDD jobs")["seconds"]
    return seconds


if __name__ == "__main__":
    raise SystemExit(main())

"""The cost of an epoch follows the change, not the state: 10k touched keys out of 1M beside 10k out of 20k.

Two Penstock jobs, alike but for the number of keys. Each first reads a million events in epochs of 10k, key after key (all keys
once, or 20k keys fifty times), then runs epochs of 10k events with 10k different keys, chosen at random. Each event updates
(count, sum) of its key and gives an output record, exactly once to Parquet files.

Timed: these later epochs, the first few left out, from planning to commit, by the job's own history; compared are the medians.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
from harness.contenders import ContenderError, run_contender
from harness.places import fresh_folder
from harness.progress import say
from harness.published import published_files
from harness.reference import MismatchError, check_running_sums, read_parquet_files
from harness.report import Report, parser_of, table_of

SETTLE = 5
"""Epochs after the load that are not measured."""


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--large", type=int, default=1_000_000, help="keys of the large state")
    parser.add_argument("--small", type=int, default=20_000, help="keys of the small state")
    parser.add_argument("--touched", type=int, default=10_000, help="keys touched in an epoch")
    parser.add_argument("--epochs", type=int, default=40, help="measured epochs")
    arguments = parser.parse_args()
    if arguments.touched > min(arguments.small, arguments.large):
        parser.error("an epoch cannot touch more keys than there are")

    report = Report("state_size")
    rows: list[list[str]] = []
    load = -(-arguments.large // arguments.touched) * arguments.touched
    medians: dict[str, float] = {}
    for name, keys in (("small", arguments.small), ("large", arguments.large)):
        seconds = run_one(name, parameters_of(keys, load, arguments.touched, arguments.epochs), report)
        if seconds:
            medians[name] = statistics.median(seconds)
            report.details[name] = {"keys": keys, "epoch_seconds": [round(each, 4) for each in seconds]}
            report.rates[f"{name}_epoch_ms"] = round(medians[name] * 1000, 1)
            high = float(np.percentile(seconds, 90))
            shown = (f"{each * 1000:.0f}" for each in (medians[name], high))
            rows.append([name, f"{keys:,}", f"{arguments.touched:,}", str(len(seconds)), *shown])
    report.ratio("touched", medians.get("large"), medians.get("small"))
    columns = ["state", "keys", "touched", "epochs", "median ms", "p90 ms"]
    return report.finish(table_of("epochs that touch the same number of keys", columns, rows), arguments.json)


def parameters_of(keys: int, load: int, touched: int, epochs: int) -> dict[str, Any]:
    """Of a job that has `epochs` measured epochs."""
    return {"job": "state_size", "keys": keys, "load": load, "touched": touched, "epochs": epochs + SETTLE}


def run_one(name: str, parameters: dict[str, Any], report: Report, source: Path | None = None) -> list[float]:
    """The measured epochs' seconds."""
    folder = fresh_folder("state_size", name)
    request = {**parameters, "out": str(folder)}
    try:
        history = run_contender("harness.penstock_jobs", request, folder, label=name, source=source)["history"]
    except ContenderError as error:
        report.problems.append(str(error))
        return []
    try:
        check_running_sums(*reference_of(parameters), read_parquet_files(published_files(folder / "out")))
        say(f"{name}: output checked")
    except MismatchError as error:
        report.problems.append(f"{name}: {error}")
    skipped = parameters["load"] // parameters["touched"] + SETTLE
    measured = [epoch["seconds"] for epoch in history[skipped:] if epoch["records"] == parameters["touched"]]
    wanted = parameters["epochs"] - SETTLE
    if len(measured) != wanted:
        report.problems.append(f"{name}: {len(measured)} epochs of {wanted} touched {parameters['touched']:,} keys each")
    return measured


def reference_of(parameters: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """All keys and values, by the definition of the input (see `penstock_jobs.Touches`) but made in one piece."""
    load, touched, keys = parameters["load"], parameters["touched"], parameters["keys"]
    rounds = [np.random.default_rng(n).choice(keys, touched, replace=False, shuffle=False) for n in range(parameters["epochs"])]
    assert all(len(np.unique(chosen)) == touched for chosen in rounds)
    every = np.concatenate([np.arange(load) % keys, *rounds])
    return every, np.arange(len(every)) % 1000 / 1000


if __name__ == "__main__":
    raise SystemExit(main())

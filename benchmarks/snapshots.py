"""What snapshots cost: savepoint and restore of much state, durable bytes of an epoch, throughput with and without.

State: per key a count, a sum and a text, about 100 bytes with the key. Events are generated, output goes exactly once to Parquet.

- savepoint: of a job that does not run, from the call to savepoint.json; its bytes; the peak memory of what made it.
- restore: from the call of a job that starts from the savepoint, in a warm session, to its first committed epoch, which has
  touched every partition: by then all of the state is in the local stores. Ratio `restore`: over the time in which Spark, warm,
  reads and sorts the same Parquet by key group and key, and keeps nothing.
- `delta`: everything that epochs which touch 10k of the keys make the job write (deltas, manifests, merged files) over the bytes
  of the changed entries, keys and values.
- `interval`: throughput with a commit of every epoch over that with a checkpoint every 30 s, in turns in one warm session.
- `during`: throughput of a job with 1M keys while `penstock savepoint` runs beside it, over that without, in turns.
- `slow_storage`, `slow_sink`: throughput with a storage that takes 1 s for each write, and with a sink whose commit takes 300 ms,
  over that without, in turns as well.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness.contenders import ContenderError, Result, run_contender
from harness.peers import SPARK, python_of
from harness.penstock_snapshots import Keys
from harness.places import fresh_folder
from harness.report import Report, parser_of, table_of

JOBS = "harness.penstock_snapshots"
TOUCHED, EPOCHS = 10_000, 40
PARTS = ("large", "interval", "slow", "during")


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--seconds", type=int, default=40, help="of each throughput that is measured")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each throughput; also savepoints beside a running job")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    report = Report("snapshots")
    rows: list[list[str]] = []
    try:
        if "large" in arguments.only:
            for number, keys in enumerate(arguments.keys):
                rows += large_state(keys, report, ratios=number == 0)
        if "interval" in arguments.only:
            pair = throughputs("interval", {"often": {"interval": 0}, "seldom": {"interval": 30}}, arguments, report)
            report.ratio("interval", pair["often"], pair["seldom"])
            rows += [[f"a commit every epoch: {pair['often']:,.0f} events/s", f"every 30 s: {pair['seldom']:,.0f}", "", "", ""]]
        if "slow" in arguments.only:
            kinds: dict[str, dict[str, Any]] = {"fast": {}, "storage": {"slow": "storage"}, "sink": {"slow": "sink"}}
            rates = throughputs("slow", kinds, arguments, report)
            report.ratio("slow_storage", rates["storage"], rates["fast"])
            report.ratio("slow_sink", rates["sink"], rates["fast"])
            rows += [[f"{name}: {rate:,.0f} events/s", "", "", "", ""] for name, rate in rates.items()]
        if "during" in arguments.only:
            rows += during(min(arguments.keys), arguments.rounds, report)
    except ContenderError as error:
        report.problems.append(str(error))
    columns = ["what", "seconds", "bytes", "peak memory", "rows"]
    return report.finish(table_of("snapshots", columns, rows), arguments.json)


@dataclass(frozen=True, slots=True)
class Journey:
    """A large state that was loaded, saved and restored: what each of the three processes found."""

    folder: Path
    loaded: Result
    saved: Result
    restored: Result
    state: list[Path]
    stored: pa.Table


def load_save_restore(keys: int, report: Report, source: Path | None = None) -> Journey:
    folder = fresh_folder("snapshots", f"keys-{keys}")
    parameters = {"keys": keys, "touched": TOUCHED, "epochs": EPOCHS, "out": str(folder)}
    loaded = run_contender(JOBS, {**parameters, "job": "load"}, folder, label=f"load {keys:,}", source=source)
    storage, to = folder / "state-storage", folder / "savepoint"
    saved = run_contender(
        JOBS,
        {"job": "savepoint", "storage": str(storage), "to": str(to)},
        _below(folder, "save"),
        label=f"savepoint {keys:,}",
        source=source,
    )
    state = [path for path in sorted((to / "state").glob("*profile*.parquet")) if "timers" not in path.name]
    stored = pa.concat_tables(pq.read_table(path, columns=["key", "raw_key", "raw_value"]) for path in state)
    if stored.num_rows != keys or len(stored["key"].unique()) != keys:
        report.problems.append(f"the savepoint of {keys:,} keys has {stored.num_rows:,} rows")
    position = keys + TOUCHED * EPOCHS
    restored = run_contender(
        JOBS,
        {**parameters, "job": "restore", "savepoint": str(to), "position": position, "out": str(_below(folder, "restored"))},
        _below(folder, "restore"),
        label=f"restore {keys:,}",
        source=source,
    )
    if restored["entries"] < keys or restored["records"] != 2000:
        report.problems.append(f"restored: {restored['entries']:,} entries of {keys:,}, {restored['records']} records read")
    return Journey(folder, loaded, saved, restored, state, stored)


def large_state(keys: int, report: Report, *, ratios: bool) -> list[list[str]]:
    """Load, save, restore; and what epochs write."""
    journey = load_save_restore(keys, report)
    loaded, saved, restored = journey.loaded, journey.saved, journey.restored
    report.rates |= {
        f"savepoint_{keys}_s": round(saved["seconds"], 2),
        f"restore_{keys}_s": round(restored["seconds"], 2),
        f"savepoint_{keys}_mb": round(saved["bytes"] / 1e6, 1),
    }
    made = (f"{saved['seconds']:.1f}", _mb(saved["bytes"]), _mb(saved["peak_kb"] * 1024), f"{saved['rows']:,}")
    back = (f"{restored['seconds']:.1f}", "", _mb(restored["peak_kb"] * 1024), f"{restored['entries']:,}")
    rows = [[f"savepoint of {keys:,} keys", *made], [f"restore of {keys:,} keys", *back]]
    if ratios:
        parquet = {"files": [str(path) for path in journey.state]}
        python = python_of(SPARK)
        peer = run_contender(
            "peers.spark_sort", parquet, _below(journey.folder, "sort"), label="Spark reads and sorts", python=python
        )
        report.ratio("restore", restored["seconds"], peer["seconds"])
        rows.append([f"Spark reads and sorts {peer['rows']:,} rows", f"{peer['seconds']:.1f}", "", "", f"{peer['rows']:,}"])
        entry = sum(len(k.as_py()) + len(v.as_py()) for k, v in _sample(journey.stored)) / SAMPLE + 4
        changed = _distinct_touched(keys) * entry
        report.ratio("delta", loaded["written"], changed)
        report.details["delta"] = {"bytes_of_an_entry": round(entry, 1), "written": loaded["files"], "changed": round(changed)}
        rows.append([f"{EPOCHS} epochs that touch {TOUCHED:,} keys: written", "", _mb(loaded["written"]), "", ""])
        rows.append(["  changed entries", "", _mb(changed), "", ""])
    return rows


SAMPLE = 10_000


def _sample(stored: Any) -> Any:
    part = stored.slice(0, SAMPLE)
    return zip(part["raw_key"], part["raw_value"], strict=True)


def _distinct_touched(keys: int) -> int:
    """How many entries the epochs change: keys that come twice in an epoch are one."""
    numbers = np.arange(keys, keys + TOUCHED * EPOCHS)
    chosen = Keys(keys)(numbers)["key"].to_numpy()
    return sum(len(np.unique(chosen[start : start + TOUCHED])) for start in range(0, len(chosen), TOUCHED))


def throughputs(what: str, kinds: dict[str, dict[str, Any]], arguments: Any, report: Report) -> dict[str, float]:
    """The median rate of each kind, run in turns in one session."""
    folder = fresh_folder("snapshots", what)
    base = {"job": "throughputs", "keys": 10_000, "seconds": arguments.seconds, "warm_seconds": 10, "out": str(folder)}
    found = run_contender(JOBS, {**base, "kinds": kinds, "rounds": arguments.rounds}, folder, label=what)["found"]
    rates = {name: [result["rate"] for result in results] for name, results in found.items()}
    report.details[what] = {name: [round(rate) for rate in some] for name, some in rates.items()}
    medians = {name: statistics.median(some) for name, some in rates.items()}
    report.rates |= {f"{what}_{name}": round(rate) for name, rate in medians.items()}
    return medians


def during(keys: int, rounds: int, report: Report) -> list[list[str]]:
    folder = fresh_folder("snapshots", "during")
    parameters = {"job": "during", "keys": keys, "rounds": rounds, "pause": 15, "out": str(folder)}
    spans = run_contender(JOBS, parameters, folder, label="during")["spans"]
    saving, without = ([span for span in spans if span["saving"] is with_it] for with_it in (True, False))
    rates = [statistics.median(span["rate"] for span in some) for some in (saving, without)]
    report.ratio("during", *rates)
    report.details["during"] = spans
    seconds = statistics.median(span["seconds"] for span in saving)
    return [
        [f"without a savepoint: {rates[1]:,.0f} events/s", "", "", "", ""],
        [f"while one is made: {rates[0]:,.0f} events/s", f"{seconds:.1f}", "", "", ""],
    ]


def _below(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def _mb(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


if __name__ == "__main__":
    raise SystemExit(main())

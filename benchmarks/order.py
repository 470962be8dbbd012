"""What one order costs: a keyed function over history, on Spark, with two readers.

- `turns`: files one after another in time, over files side by side (each has records of all the time, and a lane of its own);
- `steps`: records with their own millisecond each, time moving with every record, over the same without event time at all.

Every run is in one session, after a warm-up; the median of `--runs` counts. The number of results is checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import FileSink, FileSource, KeyedProcessFunction, StreamEnvironment, ValueState, Watermarks
from penstock.executors.spark.session import make_session

FILES, KEYS, PARALLELISM = 8, 10_000, 2


class Sum(KeyedProcessFunction[int, dict[str, Any], dict[str, Any]]):
    """The running sum of a key."""

    total = ValueState(tuple[int, float], default=(0, 0.0))

    def process(self, event: dict[str, Any], ctx: Any) -> Iterable[dict[str, Any]]:
        count, total = self.total.value
        self.total.update((count + 1, total + event["v"]))
        return ({"key": ctx.key, "count": count + 1, "sum": total + event["v"]},)


def write(folder: Path, events: int, kind: str, *, in_turn: bool) -> Path:
    """Events a millisecond apart, in files one after another in time, or dealt out to all of them."""
    folder.mkdir(parents=True)
    for number in range(FILES):
        mine = range(number * events // FILES, (number + 1) * events // FILES) if in_turn else range(number, events, FILES)
        table = pa.table({"k": [n * 7919 % KEYS for n in mine], "t": list(mine), "v": [n % 100 / 4 for n in mine]})
        if kind == "parquet":
            pq.write_table(table, folder / f"{number}.parquet")
        else:
            lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
            (folder / f"{number}.json").write_text(lines)
    return folder


def rate(spark: Any, folder: Path, events: int, watermarks: Watermarks[Any] | None, lanes: int | None = None) -> float:
    """Events a second."""
    with tempfile.TemporaryDirectory() as out:
        env = StreamEnvironment("order", spark=spark, parallelism=PARALLELISM, first_records_per_epoch=200_000)
        stream = env.from_source(FileSource(str(folder), lanes=lanes), watermarks=watermarks, name="in")
        stream.key_by("k").process(Sum(), name="sum").sink_to(FileSink(out, format="parquet"), name="out")
        begun = time.perf_counter()
        result = env.execute()
        seconds = time.perf_counter() - begun
    if result.records_in != events:
        raise SystemExit(f"{result.records_in} records were read, not {events}")
    return events / seconds


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--events", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--format", choices=["parquet", "json"], default="parquet")
    options.add_argument("--json")
    chosen = options.parse_args()
    spark = make_session(
        "order", f"local[{PARALLELISM}]", {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    )
    by_time: Watermarks[Any] = Watermarks.monotonous(timestamp="t")
    with tempfile.TemporaryDirectory() as place:
        turns = write(Path(place) / "turns", chosen.events, chosen.format, in_turn=True)
        beside = write(Path(place) / "beside", chosen.events, chosen.format, in_turn=False)
        cases: dict[str, Callable[[], float]] = {
            "one after another": lambda: rate(spark, turns, chosen.events, by_time),
            "side by side": lambda: rate(spark, beside, chosen.events, by_time, lanes=FILES),
            "a step of 1 s": lambda: rate(spark, turns, chosen.events, Watermarks.monotonous(timestamp="t", every=1)),
            "without time": lambda: rate(spark, turns, chosen.events, None),
        }
        found: dict[str, list[float]] = {name: [] for name in cases}
        for name in cases:
            cases[name]()
        for _ in range(chosen.runs):
            for name, run in cases.items():
                found[name].append(run())
    spark.stop()
    rates = {name: statistics.median(runs) for name, runs in found.items()}
    ratios = {
        "turns": rates["one after another"] / rates["side by side"],
        "steps": rates["one after another"] / rates["without time"],
        "coarse": rates["a step of 1 s"] / rates["without time"],
    }
    for name, value in rates.items():
        print(f"{name:20} {value:12,.0f} events/s   {', '.join(f'{run:,.0f}' for run in found[name])}")
    for name, value in ratios.items():
        print(f"{name:20} {value:12.2f}")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps({"ratios": ratios, "rates": rates, "verified": True}, indent=2))


if __name__ == "__main__":
    main()

"""What waiting for other systems costs: 20,000 calls of 10 ms, 100 at once in all, over two partitions, on Spark.

`async` is the time from the first call to the last answer over the ideal: as if 100 calls were always under way and nothing else
took any time (2 s). It covers all epochs between, what they commit, and the waiting at their ends, but neither the start of Spark
nor what comes before the first call. `whole` is the time of the whole `execute()` over the ideal, in a session that is warm.
Every answer is checked, with how many calls were under way at once.

The function notes when it was called and answered; the clock is that of the machine, which all its processes share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from penstock import FileSink, GeneratorSource, StreamEnvironment, read_output
from penstock.executors.spark.session import make_session

PARALLELISM, AT_ONCE, CALL_S = 2, 100, 0.01


async def ask(event: dict[str, Any]) -> dict[str, Any]:
    begun = time.time()
    await asyncio.sleep(CALL_S)
    return {"n": event["n"], "answer": 7 * event["n"], "begun": begun, "ended": time.time()}


def run(spark: Any, calls: int) -> dict[str, float]:
    """Times over the ideal, of one verified run."""
    ideal_s = calls * CALL_S / AT_ONCE
    with tempfile.TemporaryDirectory() as out:
        env = StreamEnvironment("asks", spark=spark, parallelism=PARALLELISM)
        source = env.from_source(GeneratorSource(lambda n: {"n": n}, count=calls, partitions=PARALLELISM), name="in")
        asked = source.async_map(ask, capacity=AT_ONCE // PARALLELISM, timeout=30, name="ask")
        asked.sink_to(FileSink(out, format="parquet"), name="out")
        begun = time.perf_counter()
        env.execute()
        whole_s = time.perf_counter() - begun
        rows = list(read_output(out))
    verify(rows, calls)
    span_s = max(row["ended"] for row in rows) - min(row["begun"] for row in rows)
    return {"async": span_s / ideal_s, "whole": whole_s / ideal_s, "seconds": span_s, "at_once": most_at_once(rows)}


def verify(rows: list[dict[str, Any]], calls: int) -> None:
    if sorted((row["n"], row["answer"]) for row in rows) != [(n, 7 * n) for n in range(calls)]:
        raise SystemExit(f"{len(rows)} answers are not those to {calls} calls")
    if (most := most_at_once(rows)) > AT_ONCE:
        raise SystemExit(f"{most} calls were under way at once, more than {AT_ONCE}")


def most_at_once(rows: list[dict[str, Any]]) -> int:
    """How many calls were under way at once, at most. Within a microsecond, ends come first."""
    moments = sorted([(row["ended"], -1) for row in rows] + [(row["begun"], 1) for row in rows])
    running = most = 0
    for _, change in moments:
        running += change
        most = max(most, running)
    return most


def case_async(spark: Any, calls: int, runs: int) -> dict[str, Any]:
    """The median of some runs, after one that warms up."""
    run(spark, max(1, calls // 10))
    found = [run(spark, calls) for _ in range(runs)]
    return {name: statistics.median(one[name] for one in found) for name in found[0]} | {
        "runs": [round(one["async"], 3) for one in found],
        "verified": True,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=20_000)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--json")
    chosen = options.parse_args()
    spark = make_session(
        "asks", f"local[{PARALLELISM}]", {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    )
    try:
        found = case_async(spark, chosen.calls, chosen.runs)
    finally:
        spark.stop()
    print(f"{chosen.calls:,} calls of {CALL_S * 1000:.0f} ms, {AT_ONCE} at once: {found['seconds']:.2f} s")
    print(f"async {found['async']:.2f} of the ideal (runs: {found['runs']}), whole execute() {found['whole']:.2f}")
    print(f"under way at once: {found['at_once']:.0f} at most")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps({"ratios": {"async": found["async"]}, **found}, indent=2))


if __name__ == "__main__":
    main()

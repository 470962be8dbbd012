"""What a turn of a loop costs, on Spark with two readers.

- `within_us`: a turn within a task: one record that goes round a loop without an exchange;
- `across_ms`: a turn to the other partition, by `key_by`: a lap;
- `records_s`: records a second through the body of a loop without an exchange, many at once.

Every run is in one session, after a warm-up; the median of `--runs` counts. The number of rounds is checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from penstock import CollectSink, StreamEnvironment
from penstock.executors.spark.session import make_session
from penstock.state.encoding.keys import encode_key
from penstock.state.key_groups import NEW_JOBS, KeyGroups, default_max_parallelism

PARALLELISM = 2


def timed(spark: Any, numbers: list[int], *, by_key: bool, turns: int) -> float:
    """Seconds until every number has been counted down to 0."""
    env = StreamEnvironment("loops", spark=spark, parallelism=PARALLELISM)
    loop = env.from_collection([(n, n) for n in numbers], name="in").iterate(turns=turns, name="loop")
    keys = other_keys()
    moved = loop.key_by(lambda row: keys[row[1] % PARALLELISM]).map(lambda row: (row[0], row[1] - 1)) if by_key else None
    stepped = loop.map(lambda row: (row[0], row[1] - 1)) if moved is None else moved
    loop.close_with(stepped.filter(lambda row: row[1] > 0))
    sink = CollectSink()
    stepped.filter(lambda row: row[1] == 0).sink_to(sink)
    begun = time.perf_counter()
    env.execute()
    seconds = time.perf_counter() - begun
    assert len(list(sink.results())) == len(numbers)
    return seconds


def other_keys() -> list[int]:
    """A key of each partition."""
    groups = KeyGroups(default_max_parallelism(PARALLELISM), NEW_JOBS)
    found: dict[int, int] = {}
    for key in range(1000):
        found.setdefault(int(groups.of_many([encode_key(key)])[0]) * PARALLELISM // groups.count, key)
    return [found[partition] for partition in range(PARALLELISM)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--hops", type=int, default=100)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    spark = make_session("loops", f"local[{PARALLELISM}]", {})
    timed(spark, [3] * 10, by_key=True, turns=10)

    def median(numbers: list[int], *, by_key: bool, turns: int) -> float:
        return statistics.median(timed(spark, numbers, by_key=by_key, turns=turns) for _ in range(args.runs))

    nothing = median([1], by_key=False, turns=1)
    nothing_by_key = median([1], by_key=True, turns=1)
    rounds, hops, at_once = args.rounds, args.hops, 20
    within = median([rounds], by_key=False, turns=rounds)
    across = median([hops], by_key=True, turns=1_000)
    many = median([at_once] * args.records, by_key=False, turns=1_000)
    found = {
        "within_us": round((within - nothing) / rounds * 1e6, 1),
        "across_ms": round((across - nothing_by_key) / hops * 1e3, 1),
        "records_s": round(args.records * at_once / (many - nothing)),
    }
    print(json.dumps(found))
    if args.json is not None:
        args.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()

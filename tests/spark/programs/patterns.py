"""A pattern with timeouts, over columns and by functions, and rules that change, in one job.

    events ─→ by key ─┬─ pattern, columns    ─┐
                      ├─ pattern, functions  ─┼─→ results (matches and timed-out partial matches)
    rules ─→ broadcast ─┴─ rules             ─┘

The n-th event happens about 10 ms after the one before, up to 190 ms out of order; nothing is late.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import (
    FileSink,
    GeneratorSource,
    OutputTag,
    Pattern,
    PatternFunction,
    RestartPolicy,
    SkipStrategy,
    StreamEnvironment,
    Watermarks,
    col,
)

EVENTS, KEYS, PARTITIONS = 4_000, 30, 2
STEP_MS, JITTER_MS, SLACK_MS = 10, 190, 200
WITHIN_MS = 2_500

Row = dict[str, Any]
TIMED_OUT: OutputTag[Row] = OutputTag("timed out")


def events(numbers: Any) -> pa.RecordBatch:
    keys = pa.array([f"k{n}" for n in (numbers * 7 % KEYS).tolist()])
    kinds = pa.array(["abc"[n] for n in (numbers * numbers // 7 % 3).tolist()])
    times = numbers * STEP_MS + numbers * 7919 % JITTER_MS // 10 * 10
    return pa.record_batch({"n": pa.array(numbers), "key": keys, "kind": kinds, "time": pa.array(times)})


class Kind:
    """A condition as a function."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, event: Row) -> bool:
        return bool(event["kind"] == self.kind)


def pattern(*, columns: bool, first: str = "a", last: str = "c") -> Pattern:
    def is_kind(kind: str) -> Any:
        return col("kind") == kind if columns else Kind(kind)

    return (
        Pattern.begin("x", SkipStrategy.past_last_event())
        .where(is_kind(first))
        .one_or_more()
        .consecutive()
        .followed_by("y")
        .where(is_kind(last))
        .within(timedelta(milliseconds=WITHIN_MS))
    )


RULES: list[tuple[int, Row]] = [
    (-1, {"rule": "one", "pattern": json.loads(pattern(columns=True).to_json())}),
    (8_000, {"rule": "two", "pattern": json.loads(pattern(columns=True, first="b").to_json())}),
    (20_000, {"rule": "one", "version": 5, "pattern": json.loads(pattern(columns=True, last="b").to_json())}),
    (30_000, {"rule": "two", "remove": True}),
]


class Numbers(PatternFunction[Row, Row]):
    def __init__(self, path: str) -> None:
        self.path = path

    def shown(self, match: dict[str, list[Row]], ctx: Any, *, timed_out: bool) -> Row:
        numbers = [event["n"] for events in match.values() for event in events]
        return {"path": ctx.rule or self.path, "version": ctx.rule_version or 0, "numbers": str(numbers), "timed_out": timed_out}

    def process_match(self, match: dict[str, list[Row]], ctx: Any) -> Iterator[Row]:
        yield self.shown(match, ctx, timed_out=False)

    def process_timed_out(self, match: dict[str, list[Row]], ctx: Any) -> None:
        ctx.output(TIMED_OUT, self.shown(match, ctx, timed_out=True))


def rule_record(number: int) -> Row:
    time, rule = RULES[number]
    return {"time": time, "rule": json.dumps(rule)}


def program(folder: Path, **settings: Any) -> StreamEnvironment:
    """The job, in `folder`: results go to `folder/results`."""
    defaults: dict[str, Any] = {
        "storage": str(folder / "storage"),
        "parallelism": 2,
        "max_records_per_epoch": 500,
        "keep": 4,
        "compact_after": 4,
        "restart": RestartPolicy(attempts=8, first_delay=0.05),
        "local_dir": str(folder / "local"),
    }
    env = StreamEnvironment("patterns", **{**defaults, **settings})
    slack = timedelta(milliseconds=SLACK_MS)
    watermarks: Watermarks[Any] = Watermarks.bounded(slack=slack, timestamp="time")
    source = GeneratorSource(events, count=EVENTS, partitions=PARTITIONS, batch_size=50, vectorised=True)
    by_key = env.from_source(source, watermarks=watermarks, name="events").key_by("key")
    control = env.from_source(GeneratorSource(rule_record, count=len(RULES)), watermarks=watermarks, name="rules")
    rules = control.map(lambda record: record["rule"], name="rule")
    made = [
        by_key.pattern(pattern(columns=columns)).process(Numbers(path), name=path)
        for path, columns in (("columns", True), ("functions", False))
    ]
    made.append(by_key.patterns(rules).process(Numbers(""), name="with-rules"))
    results = [*made, *(stream.side_output(TIMED_OUT) for stream in made)]
    results[0].union(*results[1:]).sink_to(FileSink(str(folder / "results")), name="results")
    return env


def main() -> None:
    network = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    result = program(Path(sys.argv[1]), master="local[2,4]", spark_config=network).execute()
    print(f"finished={result.finished} epochs={result.epochs} restarts={result.restarts}", flush=True)


if __name__ == "__main__":
    main()

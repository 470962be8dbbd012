"""Patterns on real Spark, three ways: straight, killed and recovered, from a savepoint at another parallelism.

Each way every match and every partial match that times out is what the events of each key give one by one, once.
"""

from __future__ import annotations

import signal
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from penstock import EpochRecord, Job
from penstock.cep.atoms import Event
from penstock.cep.compiling import compile_pattern
from penstock.cep.matching import Matcher, Matches, chain
from penstock.connectors.files.reading.published import read_rows
from penstock.ids import MAX_WATERMARK
from tests.spark.launching import launch
from tests.spark.programs import patterns as job

pytestmark = pytest.mark.spark


@cache
def expected() -> Counter[Any]:
    """What the pattern finds in the events of each key, in order of time."""
    by_key: dict[str, list[dict[str, Any]]] = {}
    for row in job.events(np.arange(job.EVENTS, dtype=np.int64)).to_pylist():
        by_key.setdefault(row["key"], []).append(row)
    matcher, found = Matcher(compile_pattern(job.pattern(columns=False))), Counter[Any]()
    for rows in by_key.values():
        matches, results = Matches(), []
        for number, row in enumerate(sorted(rows, key=lambda row: row["time"])):
            results += matcher.expire(matches, row["time"])
            results += matcher.take(matches, Event(row["time"], number, row))
        results += matcher.expire(matches, MAX_WATERMARK)
        for one in results:
            numbers = str([link.event.value["n"] for link in chain(one.last)])
            found.update((path, 0, numbers, one.timed_out) for path in ("columns", "functions"))
    return found


def check_exact(*folders: Path, rules: Counter[Any] | None = None) -> Counter[Any]:
    """What rules found; it is the same each way."""
    rows = [row for folder in folders for row in read_rows(folder / "results")]
    found = Counter((row["path"], row["version"], row["numbers"], row["timed_out"]) for row in rows)
    fixed = Counter({row: count for row, count in found.items() if row[0] in ("columns", "functions")})
    assert fixed == expected(), f"lost {(expected() - fixed).most_common(5)}, made up {(fixed - expected()).most_common(5)}"
    of_rules = found - fixed
    if rules is not None:
        assert of_rules == rules, f"lost {(rules - of_rules).most_common(5)}, made up {(of_rules - rules).most_common(5)}"
    return of_rules


@cache
def by_rules() -> Counter[Any]:
    """What an inline job makes of the rules."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        assert job.program(Path(folder), executor="inline", max_records_per_epoch=100_000).execute().finished
        return check_exact(Path(folder))


def test_the_program_is_about_something() -> None:
    fixed, rules = expected(), by_rules()
    assert sum(row[3] for row in fixed) > 20
    assert sum(not row[3] for row in fixed) > 100
    assert {row[:2] for row in rules} == {("one", 1), ("one", 5), ("two", 1)}


def test_straight(spark: SparkSession, tmp_path: Path) -> None:
    result = job.program(tmp_path, spark=spark).execute()
    assert result.finished
    assert result.epochs > 5
    check_exact(tmp_path, rules=by_rules())


def test_killed_and_recovered(tmp_path: Path) -> None:
    """A worker dies in a task, then the driver between two epochs' commits; the next driver dies before one; the third ends."""
    launch("patterns", tmp_path, str(tmp_path), points="task:frame=kill@9;task:delta=kill@3;manifest:after=kill@5", killed=True)
    launch("patterns", tmp_path, str(tmp_path), points="task:prepare=kill@2;epoch:ran=kill@3", killed=True)
    assert "finished=True" in launch("patterns", tmp_path, str(tmp_path))
    check_exact(tmp_path, rules=by_rules())


def test_restored_from_a_savepoint_at_another_parallelism(spark: SparkSession, tmp_path: Path) -> None:
    left = iter(range(3))

    def stop(record: EpochRecord) -> None:
        if next(left, None) is None:
            signal.raise_signal(signal.SIGTERM)

    result = job.program(tmp_path, spark=spark).execute(listener=stop)
    assert result.stopped
    saved = Job(str(tmp_path / "storage")).savepoint(tmp_path / "savepoint")
    elsewhere = tmp_path / "elsewhere"
    restored = job.program(elsewhere, spark=spark, parallelism=3, restore_from=str(saved.uri))
    assert restored.execute().finished
    check_exact(tmp_path, elsewhere, rules=by_rules())

"""Joins on real Spark, three ways: straight, killed and recovered, from a savepoint at another parallelism.

Each way every result and every late record is what double loops say, once.
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
from penstock.connectors.files.reading.published import read_rows
from tests.spark.launching import launch
from tests.spark.programs import joins as job

pytestmark = pytest.mark.spark


@cache
def expected() -> tuple[Counter[Any], Counter[Any]]:
    """Results and late records, by number."""
    numbers = np.arange(job.EVENTS, dtype=np.int64)
    sides = [job.lefts(numbers).to_pylist(), job.rights(numbers).to_pylist()]
    kept: list[dict[str, list[dict[str, Any]]]] = []
    late: Counter[Any] = Counter()
    for number, (name, rows) in enumerate(zip("lr", sides, strict=True)):
        by_key: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            n = row[name] + 3 * number
            if n % 41 == 7 and n > 1_000:
                late.update((kind, name, row[name]) for kind in ("columns", "records"))
                late.update([("temporal", name, row[name])] if name == "l" else [])
            else:
                by_key.setdefault(row["key"], []).append(row)
        kept.append(by_key)
    results: Counter[Any] = Counter()
    for key in {*kept[0], *kept[1]}:
        lefts, rights = kept[0].get(key, []), kept[1].get(key, [])
        pairs = [
            (a["l"], b["r"]) for a in lefts for b in rights if a["time"] + job.LOWER_MS <= b["time"] <= a["time"] + job.UPPER_MS
        ]
        alone = [(a["l"], None) for a in lefts if a["l"] not in {l for l, _ in pairs}]  # noqa: E741
        alone += [(None, b["r"]) for b in rights if b["r"] not in {r for _, r in pairs}]
        results.update((kind, *pair, None) for kind in ("columns", "records") for pair in (*pairs, *alone))
        number = int(key[1:])
        named = None if number % 2 else f"name {number}"
        for a in lefts:
            known = [b for b in rights if b["time"] <= a["time"]]
            version = max(known, key=lambda b: b["time"])["r"] if known else None
            results["temporal", a["l"], version, named] += 1
    return results, late


def check_exact(*folders: Path) -> None:
    results, late = expected()
    published = [row for folder in folders for row in read_rows(folder / "results")]
    found = Counter((row["kind"], row["l"], row["r"], row.get("name")) for row in published)
    assert found == results, f"lost {(results - found).most_common(5)}, made up {(found - results).most_common(5)}"
    rows = [row for folder in folders for row in read_rows(folder / "late")]
    aside = Counter((row["kind"], "l", row["l"]) if row.get("l") is not None else (row["kind"], "r", row["r"]) for row in rows)
    assert aside == late, f"lost {(late - aside).most_common(5)}, made up {(aside - late).most_common(5)}"


def test_the_program_is_about_something() -> None:
    """Records of either side meet several others, or none, or are late; there are versions, and names, and none."""
    results, late = expected()
    pairs = [row for row in results if row[0] == "columns"]
    assert sum(row[1] is None for row in pairs) > 100
    assert sum(row[2] is None for row in pairs) > 100
    assert sum(row[1] is not None and row[2] is not None for row in pairs) > 1_000
    assert min(Counter(kind for kind, _, _ in late).values()) > 50
    assert any(row[0] == "temporal" and row[2] is None for row in results)


def test_straight(spark: SparkSession, tmp_path: Path) -> None:
    result = job.program(tmp_path, spark=spark).execute()
    assert result.finished
    assert result.epochs > 5
    check_exact(tmp_path)


def test_killed_and_recovered(tmp_path: Path) -> None:
    """A worker dies in a task, then the driver between two epochs' commits; the next driver dies before one; the third ends."""
    launch("joins", tmp_path, str(tmp_path), points="task:frame=kill@9;task:delta=kill@3;manifest:after=kill@5", killed=True)
    launch("joins", tmp_path, str(tmp_path), points="task:prepare=kill@2;epoch:ran=kill@4", killed=True)
    assert "finished=True" in launch("joins", tmp_path, str(tmp_path))
    check_exact(tmp_path)


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
    check_exact(tmp_path, elsewhere)

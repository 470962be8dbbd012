"""A job whose keys are grouped by crc32 goes on on Spark: workers learn of the hash from the job, not from their own version."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import CollectSink, snapshots
from penstock.state.key_groups import CRC32, MIXED
from tests.compat.program import program
from tests.compat.test_key_hash import OLD, expected, head


def without_clocks(rows: Counter[str]) -> Counter[str]:
    """`seen` lives for 10,000 days from the year 1970, by the clock that the fixture was made with: it is over by now."""
    return Counter(json.dumps({**json.loads(row), "seen": []}, sort_keys=True) for row in rows.elements())


@pytest.mark.parametrize("rewritten", [False, True])
def test_an_old_job_goes_on(spark: SparkSession, tmp_path: Path, rewritten: bool) -> None:
    """As it is, at another parallelism, or converted, in its own storage."""
    storage = Path(shutil.copytree(OLD / "storage", tmp_path / "job"))
    start = snapshots.regroup(str(storage), None, str(tmp_path / "rewritten")).uri if rewritten else None
    sink = CollectSink()
    env = program(sink, executor="spark", spark=spark, parallelism=3, max_records_per_epoch=100)
    env.execute(storage=str(storage), restore_from=start)
    found = Counter(json.dumps(row, sort_keys=True) for row in sink.results())
    sink.discard()
    assert without_clocks(found) == without_clocks(expected(OLD))
    assert head(storage).state.key_hash == (MIXED if rewritten else CRC32)

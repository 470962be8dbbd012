"""A repair on real Spark: killed on the way and before the switch; readers see all of the old output, or all of the new."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.laws.going import COUNT, PER_EPOCH, expected, head, position, rows, run
from tests.laws.trying import Crash, manifests
from tests.spark.launching import launch
from tests.spark.test_jobs import Stopping

pytestmark = pytest.mark.spark


def test_killed_while_it_repairs(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, 1, executor=Stopping(spark, 6), pipeline=0, keep=1000)
    before, reached = rows(tmp_path), position(head(tmp_path))
    assert before == expected((1, reached))
    back = next(manifest for manifest in manifests(tmp_path) if position(manifest) == PER_EPOCH)

    launch("repaired", tmp_path, str(tmp_path), "2", str(back.epoch), points="manifest:after=kill@3", killed=True)
    assert rows(tmp_path) == before
    assert head(tmp_path).repair is not None
    launch("repaired", tmp_path, str(tmp_path), "2", points="repair:before-switch=kill", killed=True)
    assert rows(tmp_path) == before

    seen = []
    run(tmp_path, 2, executor=Stopping(spark, 1, lambda: seen.append(rows(tmp_path))), keep=1000, parallelism=3)
    assert all(expected((1, PER_EPOCH), (2, reached)) <= one for one in seen)
    assert rows(tmp_path) == expected((1, PER_EPOCH), (2, COUNT))

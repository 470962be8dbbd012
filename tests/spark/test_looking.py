"""State as Spark DataFrames: of a savepoint and of an epoch, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from penstock import snapshots
from tests.snapshots.shops import run_some, save

pytestmark = pytest.mark.spark


def test_states_are_dataframes(spark: SparkSession, tmp_path: Path) -> None:
    job = run_some(tmp_path, max_parallelism=4)
    savepoint = save(job, tmp_path / "savepoint")
    with snapshots.read(savepoint) as saved, snapshots.read(job) as epoch:
        for step, name in (("ledger", "orders"), ("ledger", "best"), ("ledger", "recent"), ("hourly", "slices")):
            frame, other = saved.state(step, name).to_spark(spark), epoch.state(step, name).to_spark(spark)
            assert frame.columns == other.columns == saved.state(step, name).schema.names
            assert sorted(frame.collect(), key=str) == sorted(other.collect(), key=str)
            assert frame.count() == saved.state(step, name).entries
        best = saved.state("ledger", "best").to_spark(spark)
        assert best.where("value.cents > 990").count() == sum(
            row["value"]["cents"] > 990 for row in saved.state("ledger", "best").to_arrow().to_pylist()
        )
    with snapshots.edit(savepoint) as edit:
        orders = saved.state("ledger", "orders").to_spark(spark)
        edit.state("ledger", "orders").put(orders.where("key = 'shop-1'").withColumn("value", fn.lit(7)))
        edited = edit.write(str(tmp_path / "edited")).uri
    found = snapshots.diff(savepoint, edited)
    assert [(s.name, s.changed) for s in found.states if not s.same] == [("orders", 1)]
    assert snapshots.read(edited).state("ledger", "orders").get("shop-1") == 7

"""State as Spark DataFrames: of a savepoint and of an epoch, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from penstock import snapshots
from penstock.connectors.files.reading.published import read_rows
from penstock.testing import End, ScriptedSource, execute_inline
from tests.snapshots.shops import orders, program, run_some, save

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


def test_a_job_on_spark_goes_on_with_other_key_groups(spark: SparkSession, tmp_path: Path) -> None:
    """128 key groups become 256: timers, windows, sessions, lists and maps go on as if nothing had happened."""
    job = run_some(tmp_path, epochs=2, each=200)
    snapshots.regroup(job, 256, str(tmp_path / "regrouped"))
    with snapshots.edit(str(tmp_path / "regrouped")) as edit:
        edit.move_source("orders", [0])
        start = edit.write(str(tmp_path / "start")).uri
    straight = program(ScriptedSource([*orders(0, 900), End()]), tmp_path / "straight", name="straight")
    execute_inline(straight, storage=str(tmp_path / "straight-job"))
    rest = ScriptedSource([*orders(600, 300), End()])
    env = program(rest, tmp_path / "rest", name="rest", executor="spark", parallelism=3, max_parallelism=256, spark=spark)
    env.execute(storage=str(tmp_path / "rest-job"), restore_from=start)
    for sink in ("hourly", "visits", "dearest"):
        whole = sorted(read_rows(str(tmp_path / "straight" / sink)), key=str)
        parts = [*read_rows(str(tmp_path / "job-out" / sink)), *read_rows(str(tmp_path / "rest" / sink))]
        assert sorted(parts, key=str) == whole, sink
    last = {row["shop"]: row for row in read_rows(str(tmp_path / "rest" / "ledger")) if "orders" in row}
    wanted = {row["shop"]: row for row in read_rows(str(tmp_path / "straight" / "ledger")) if "orders" in row}
    assert last == wanted

"""On Spark as inline: what steps see does not depend on the cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import StreamEnvironment
from tests.laws.ordered_programs import Program, build, outcome
from tests.laws.test_one_order import FAR_APART

pytestmark = pytest.mark.spark

PROGRAMS = [
    FAR_APART,
    replace(FAR_APART, seed=8, parts=(3,), parallelism=2, shape="spread twice", slack=20, every=None, deletes=False),
    replace(FAR_APART, seed=9, parts=(1, 2), parallelism=2, shape="forked", apart=10, sets_again=False),
]


def on_spark(spark: SparkSession, program: Program, records: int) -> list[Any]:
    env = StreamEnvironment("ordered", spark=spark, parallelism=program.parallelism, max_records_per_epoch=records)
    rows = build(env, program).execute_and_collect()
    return sorted((row["key"], row["n"], tuple(row["value"]), row["w"]) for row in rows)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.shape)
def test_one_output_whatever_the_cut(spark: SparkSession, program: Program) -> None:
    whole = outcome(program)
    for records in (25, 1_000_000):
        assert on_spark(spark, program, records) == whole

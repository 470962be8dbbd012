"""A value of another type in state, on real Spark: refused before anything of its epoch is committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.config import NO_RESTART
from penstock.errors import StateTypeError
from penstock.snapshots import read

pytestmark = pytest.mark.spark


class Count(KeyedProcessFunction[int, int, tuple[int, int]]):
    count = ValueState(int, default=0)

    def __init__(self, wrong: int | None) -> None:
        self.wrong = wrong

    def process(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        self.count.update("text" if value == self.wrong else self.count.value + 1)  # type: ignore[arg-type]
        yield ctx.key, self.count.value


def job(spark: SparkSession, storage: Path, wrong: int | None) -> list[tuple[int, int]]:
    env = StreamEnvironment(
        "counting", spark=spark, storage=str(storage), parallelism=2, max_records_per_epoch=20, restart=NO_RESTART
    )
    counts = env.from_collection(range(60), name="in").key_by(lambda n: n % 5).process(Count(wrong), name="count")
    return sorted(counts.execute_and_collect())


def test_nothing_is_committed_and_the_job_goes_on_when_it_is_mended(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StateTypeError) as caught:
        job(spark, tmp_path, wrong=33)
    text = str(caught.value)
    assert "state 'count' of step 'count'" in text
    assert "key: 3" in text
    assert "value: 'text'" in text
    assert "expected int" in text
    assert "record: 33" in text
    assert f"{Path(__file__).name}:" in text
    with read(str(tmp_path)) as snapshot:
        kept = snapshot.state("count", "count").to_pandas()
    assert kept["value"].tolist() == [4] * 5, "twenty records of five keys were committed before, and are still there"
    rest = job(spark, tmp_path, wrong=None)
    assert rest == sorted((key, n) for key in range(5) for n in range(5, 13))

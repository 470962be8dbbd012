"""On Spark as inline: batches whose rows move, timestamps in seconds, values that are returned, things that cannot be sent."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock import GeneratorSource, ProcessFunction, RestartPolicy, StreamEnvironment, Watermarks
from penstock.errors import PlanError, ReturnedValueError, UserCodeError

pytestmark = pytest.mark.spark

pytest.importorskip("pandas")

EVENTS = 600


def events(numbers: Any) -> pa.RecordBatch:
    """The time of an event can be told from its number, and is not in order."""
    return pa.record_batch({"n": pa.array(numbers), "at": pa.array(time_of(numbers))})


def time_of(number: Any) -> Any:
    return number * 100 + number * 7919 % 997


class Stamped(ProcessFunction[Any, Any]):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value["n"], ctx.timestamp_ms


def stream(spark: SparkSession, **options: Any) -> Any:
    env = StreamEnvironment(
        "streams", spark=spark, parallelism=2, max_records_per_epoch=200, restart=RestartPolicy(attempts=0), **options
    )
    source = GeneratorSource(events, count=EVENTS, partitions=3, batch_size=40, vectorised=True)
    return env.from_source(source, watermarks=Watermarks.bounded(seconds=2, timestamp="at"), name="in")


def pandas_function(seed: int) -> Callable[[Any], Any]:
    """A random choice of what moves rows."""
    import pandas as pd

    rng = random.Random(seed)
    ops = [rng.choice(["filter", "sort", "reverse", "double"]) for _ in range(4)]

    def work(frame: Any) -> Any:
        for op in ops:
            if op == "filter":
                frame = frame[frame["n"] % 5 != 2]
            elif op == "sort":
                frame = frame.sort_values("at")
            elif op == "reverse":
                frame = frame.iloc[::-1]
            else:
                frame = pd.concat([frame, frame[frame["n"] % 7 == 3]])
        return frame

    return work


def arrow_function(seed: int) -> Callable[[Any], Any]:
    def work(batch: Any) -> Any:
        rows = list(range(batch.num_rows))
        random.Random(seed).shuffle(rows)
        return pa.Table.from_batches([batch.take(pa.array(rows[: len(rows) * 3 // 4]))]).sort_by("n")

    return work


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("format", ["pandas", "arrow"])
def test_rows_keep_their_times(spark: SparkSession, format: str, seed: int) -> None:
    function = pandas_function(seed) if format == "pandas" else arrow_function(seed)
    found = stream(spark).map_batches(function, format=format, columns=["n", "at"]).process(Stamped()).execute_and_collect()
    assert len(found) > EVENTS // 4
    assert [time for _, time in found] == [time_of(n) for n, _ in found]


def test_rows_of_which_nothing_is_known(spark: SparkSession) -> None:
    lost = stream(spark).map_batches(lambda frame: frame.sort_values("n").reset_index(drop=True), format="pandas", name="step")
    with pytest.raises(UserCodeError, match="step 'step': the timestamps of the rows that the function returned are not known"):
        lost.execute_and_collect()


def test_a_warning_of_workers_is_said_once_by_the_driver(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    env = StreamEnvironment("seconds", spark=spark, parallelism=2, max_records_per_epoch=3)
    rows = [{"at": 1_700_000_000 + n} for n in range(8)]
    env.from_collection(rows, watermarks=Watermarks.monotonous(timestamp="at"), name="in").print()
    with caplog.at_level(logging.WARNING, "penstock"):
        env.execute()
    said = [record.getMessage() for record in caplog.records if "unit=" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("step 'in': the first timestamp in 'at', 1700000000, is taken for milliseconds since 1970")


class Returns(ProcessFunction[Any, Any]):
    def process(self, value: Any, ctx: Any) -> Any:
        return value


def test_a_returned_value(spark: SparkSession) -> None:
    with pytest.raises(ReturnedValueError, match="step 'step': process returned one value, of type dict"):
        stream(spark).process(Returns(), name="step").execute_and_collect()


def test_a_lock_in_a_closure(spark: SparkSession) -> None:
    guard = threading.Lock()

    def guarded(value: Any) -> Any:
        with guard:
            return value

    with pytest.raises(PlanError) as caught:
        stream(spark).map(guarded, name="step").execute_and_collect()
    assert caught.value.what.startswith(
        "step 'step' cannot be sent to workers: the variable 'guard' that test_a_lock_in_a_closure"
    )
    with pytest.raises(PlanError, match="the variable 'spark' that"):
        stream(spark).map(lambda value: spark.range(value["n"]).count(), name="step").execute_and_collect()

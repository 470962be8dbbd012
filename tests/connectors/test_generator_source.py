from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.generator.source import GeneratorSource
from penstock.connectors.protocol import Limits, Sheds
from penstock.errors import ConfigError, UserCodeError
from penstock.records import Columns
from tests.connectors.driving import Drive, context


class Square(NamedTuple):
    n: int
    square: int


def square(n: int) -> int:
    return n * n


def squares(n: np.ndarray[Any, np.dtype[np.int64]]) -> pa.RecordBatch:
    return pa.record_batch({"n": n, "square": n * n})


def drive(source: GeneratorSource, parallelism: int = 2) -> Drive:
    return Drive(source, context("/nowhere", parallelism))


@given(
    st.integers(0, 60),
    st.integers(1, 4),
    st.integers(1, 5),
    st.lists(st.builds(Limits, records=st.integers(1, 9), bytes=st.just(1))),
    st.lists(st.booleans(), max_size=8),
)
def test_whatever_the_cuts(count: int, partitions: int, batch: int, limits: list[Limits], crashes: list[bool]) -> None:
    d = drive(GeneratorSource(square, count=count, partitions=partitions, batch_size=batch))
    d.run(limits, crashes)
    expected = {str(k): [n * n for n in range(k, count, partitions)] for k in range(partitions)}
    assert dict(d.read) == {k: v for k, v in expected.items() if v}


def test_the_partitions_of_the_first_plan_stay() -> None:
    d = drive(GeneratorSource(square), parallelism=3)
    d.step(Limits(records=4, bytes=1))
    d.where = context("/nowhere", 5)
    d.crash()
    assert d.step(Limits(records=4, bytes=1)).partitions == ["0", "1", "2"]
    assert dict(d.read) == {"0": [0, 9, 36], "1": [1, 16, 49], "2": [4, 25]}


def test_a_rate_is_kept_by_the_clock() -> None:
    d = drive(GeneratorSource(square, rate=10.0, partitions=1))
    first = d.plan()
    assert not first.splits
    assert first.wake_ms == d.now_ms + 100
    d.now_ms += 250
    second = d.step()
    assert d.read["0"] == [0, 1]
    assert second.wake_ms == 1_000_000 + 300
    d.now_ms += 10_000
    d.crash()
    d.step()
    assert len(d.read["0"]) == 102, "what fell due while the job was down comes at once"


def test_a_rate_and_a_count_end() -> None:
    d = drive(GeneratorSource(square, rate=1000, count=5, partitions=2))
    assert not d.step().exhausted
    d.now_ms += 10_000
    assert d.step().exhausted
    assert d.all == [0, 4, 16, 1, 9]


def test_shedding_skips_to_now() -> None:
    d = drive(GeneratorSource(square, rate=100, partitions=1))
    d.step()
    d.now_ms += 1000
    assert isinstance(d.enumerator, Sheds)
    position, skipped = d.enumerator.shed(d.position, d.now_ms)
    assert skipped == 100
    d.position = position
    assert not d.step().splits
    d.now_ms += 10
    d.step()
    assert d.read["0"] == [10_000]


def test_vectorised_rows_stay_columns() -> None:
    d = drive(GeneratorSource(squares, count=5, partitions=1, vectorised=True, schema=Square))
    d.run()
    assert d.all == [Square(n, n * n) for n in range(5)]
    assert all(isinstance(batch, Columns) for batch in d.batches)


def test_a_vectorised_function_must_give_a_row_for_each_number() -> None:
    d = drive(GeneratorSource(lambda n: [1], count=5, partitions=1, vectorised=True))
    with pytest.raises(UserCodeError, match="1 events for 5 numbers"):
        d.step()


def test_an_error_names_the_function_and_the_event() -> None:
    d = drive(GeneratorSource(lambda n: 1 // (n - 3), count=5, partitions=1))
    with pytest.raises(UserCodeError, match="ZeroDivisionError") as caught:
        d.step()
    assert "event 3" in caught.value.detail
    assert __file__ in caught.value.detail


@pytest.mark.parametrize("options", [{"count": -1}, {"partitions": 0}, {"rate": 0}, {"batch_size": 0}, {"rate": float("inf")}])
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        GeneratorSource(square, **options)
    assert caught.value.hint


def test_describe() -> None:
    assert GeneratorSource(square, count=3, rate=5).describe() == "generator square: 3 events, 5/s"

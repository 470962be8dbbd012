from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.collection.source import CollectionSource
from penstock.connectors.protocol import Limits
from penstock.errors import ConfigError, SourceError
from tests.connectors.driving import Drive, context

LIMITS = st.builds(Limits, records=st.integers(1, 7), bytes=st.integers(1, 100), readers=st.integers(1, 3))


def drive(source: CollectionSource) -> Drive:
    return Drive(source, context("/nowhere"))


@given(st.lists(st.integers()), st.integers(1, 5), st.lists(LIMITS), st.lists(st.booleans(), max_size=8))
def test_whatever_the_cuts(values: list[int], partitions: int, limits: list[Limits], crashes: list[bool]) -> None:
    d = drive(CollectionSource(values, partitions=partitions))
    d.run(limits, crashes)
    assert d.all == values


def test_partitions_are_contiguous_and_even() -> None:
    d = drive(CollectionSource(range(10), partitions=3))
    d.run()
    assert {k: len(v) for k, v in d.read.items()} == {"0": 3, "1": 3, "2": 4}


def test_an_epoch_takes_no_more_than_the_limit() -> None:
    d = drive(CollectionSource(range(100), partitions=3))
    planned = d.plan(Limits(records=10, bytes=1))
    assert sum(split.records or 0 for split in planned.splits) == 10
    assert planned.backlog == 90
    assert planned.partitions == ["0", "1", "2"]


def test_timestamps_travel_with_the_values() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    d = drive(CollectionSource(["a", "b"], timestamps=[5, moment]))
    d.run()
    times = d.batches[0].timestamps
    assert times.tolist() == [5, round(moment.timestamp() * 1000)]


def test_an_empty_collection_is_exhausted_at_once() -> None:
    planned = drive(CollectionSource([])).plan()
    assert planned.exhausted
    assert not planned.splits
    assert not planned.partitions


def test_a_changed_collection_is_refused() -> None:
    d = drive(CollectionSource(range(5)))
    d.step(Limits(records=2, bytes=1))
    d.source = CollectionSource(range(6))
    d.crash()
    with pytest.raises(SourceError, match="not the one"):
        d.plan()


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ("text", {}),
        (3, {}),
        ([1], {"partitions": 0}),
        ([1], {"timestamps": [1, 2]}),
        ([1], {"timestamps": ["noon"]}),
        ([1], {"timestamps": [datetime(2026, 1, 1)]}),  # noqa: DTZ001
    ],
)
def test_what_makes_no_sense_is_refused(values: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        CollectionSource(values, **options)
    assert caught.value.hint

"""How far in event time an epoch goes; what is left for the next one; and drift."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from penstock import CollectionSource, KeyedProcessFunction, StreamEnvironment, Watermarks
from penstock.connectors.protocol import Split
from penstock.epochs.history import EpochRecord
from penstock.epochs.planning.inputs import with_rests
from penstock.epochs.planning.reach import TOGETHER, LaneAhead, Reach
from penstock.jobs.manifest import SourceState, StateLayout, version_of
from penstock.jobs.source_order import SourceOrder
from penstock.runtime.messages import Reached


def lane(clock: int | None, *, reads: bool = True, more: bool = True, drift_ms: int | None = None) -> LaneAhead:
    return LaneAhead(clock, reads, more, drift_ms)


def test_no_bound_when_all_that_is_left_is_planned() -> None:
    bound = Reach().bound([lane(10, more=False), lane(None, more=False)])
    assert bound.until is None
    assert not bound.strict


def test_at_first_all_that_is_planned_is_tried_and_then_what_the_least_lane_has() -> None:
    reach = Reach()
    bound = reach.bound([lane(None), lane(None)])
    assert bound.until is None
    assert bound.strict
    reach.fell_short(bound, 500, records=100)
    assert reach.bound([lane(None), lane(None)]).until == 500


def test_the_span_is_learned() -> None:
    reach = Reach()
    lanes = [lane(1_000), lane(1_200)]
    bound = reach.bound(lanes)
    reach.fell_short(bound, 1_500, records=100)
    reach.ran(reach.bound(lanes), records=80, allowed=100)
    assert reach.bound([lane(1_500), lane(1_600)]).until == 2_000
    reach.ran(reach.bound([lane(1_500)]), records=160, allowed=100)  # twice as dense
    assert reach.bound([lane(2_000)]).until == 2_250


def test_a_lane_without_a_split_is_not_passed() -> None:
    assert Reach().bound([lane(100), lane(140, reads=False)]).until == 140


def test_one_tick_is_kept_together_though_it_is_more_than_an_epoch_takes() -> None:
    reach = Reach()
    assert reach.factor == 1
    reach.fell_short(reach.bound([lane(70)]), 70, records=100)
    assert reach.factor == 4
    assert reach.bound([lane(70)]).strict
    while reach.bound([lane(70)]).strict:
        assert reach.factor < 4 * TOGETHER
        reach.fell_short(reach.bound([lane(70)]), 70, records=100)
    assert reach.bound([lane(70)]).until is None
    reach.ran(reach.bound([lane(70)]), records=50, allowed=100)
    assert reach.factor == 1
    assert reach.bound([lane(70)]).strict


def test_drift_bounds_though_there_is_no_more() -> None:
    lanes = [lane(100, more=False, drift_ms=30), lane(400, more=False, drift_ms=30)]
    assert Reach().bound(lanes).until == 130


def test_what_was_not_read_is_the_rest() -> None:
    splits = [Split("0", n) for n in range(4)]
    order = SourceOrder(tasks=[[*splits, Split("1", 9)]])
    reached = {"in": {"0": Reached(splits=1, rows=7, records=20), "1": Reached(splits=1, rows=0, records=5, ended=True)}}
    (after,) = with_rests({"in": SourceState()}, {"in": order}, reached).values()
    assert after.rest == {"0": splits[1:]}
    assert after.skip == {"0": 7}


def test_a_rest_makes_a_manifest_of_format_3() -> None:
    layout = StateLayout(parallelism=1, max_parallelism=1, fingerprint="")
    assert version_of(layout, {"in": SourceState()}) < 3
    rest = SourceState(rest={"0": [Split("0", 1)]})
    assert version_of(layout, {"in": rest}) == 3
    assert msgspec.json.decode(msgspec.json.encode(rest), type=SourceState) == rest


class Times(KeyedProcessFunction[int, int, int]):
    def process(self, value: int, ctx: Any) -> Any:
        return [value]


@pytest.mark.parametrize("drift", [None, 50])
def test_no_partition_gets_further_ahead_than_the_drift(drift: int | None) -> None:
    """Two partitions: one has many records for a time, the other few."""
    times = [*range(0, 1_000, 5), *range(0, 20_000, 100)]
    marks: Watermarks[int] = Watermarks.monotonous(timestamp=_itself)
    if drift is not None:
        marks = marks.with_drift(timedelta(milliseconds=drift))
    env = StreamEnvironment("drift", executor="inline", parallelism=2, guarantee="exactly-once", max_records_per_epoch=100_000)
    epochs: list[EpochRecord] = []
    stream = env.from_source(CollectionSource(times, partitions=2), watermarks=marks, name="times")
    found = stream.key_by(_parity).process(Times(), name="seen").execute_and_collect(listener=epochs.append)
    assert sorted(found) == sorted(times)
    assert (len([epoch for epoch in epochs if epoch.records_in]) > 10) == (drift is not None)


def _itself(value: int) -> int:
    return value


def _parity(value: int) -> int:
    return value % 2

"""What every source keeps; the rules are those at the head of `penstock.connectors.protocol.source`."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import cycle, repeat
from typing import Any

from penstock.connectors.protocol import Limits, Source, Split
from penstock.ids import Epoch
from penstock.plan import job_pickle
from penstock.testing.contracts.broken import require, require_same
from penstock.testing.contracts.source_case import PLENTY, SourceCase, SourceRun

SourceCheck = Callable[[SourceCase], None]

_FEW = Limits(records=1, bytes=1 << 30, readers=2)
_MOST_POSITION = 1 << 20


def _all(case: SourceCase) -> dict[str, list[Any]]:
    return {partition: list(values) for partition, values in case.expected.items() if values}


def it_is_a_definition(case: SourceCase) -> None:
    """A source is small, frozen, picklable, and can be described."""
    source = case.source
    require(isinstance(source, Source), "a source has all that penstock.connectors.protocol.Source has", repr(source))
    require(bool(source.describe()), "describe() says what the source is")
    copy = job_pickle.loads(job_pickle.dumps(source))
    require_same(copy.describe(), source.describe(), "a source is the same after it was pickled")
    try:
        source.contract_check = 1  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        return
    require(False, "a source is frozen: make it a dataclass(frozen=True)")


def all_is_read_once_in_order(case: SourceCase) -> None:
    """Everything is read, once, in order within each partition."""
    run = SourceRun(case)
    run.to_the_end()
    require_same(run.read, _all(case), "all records are read once, in the order of their partition")


def it_does_not_depend_on_the_cut(case: SourceCase) -> None:
    """Small epochs read what large ones read."""
    for limits in (repeat(_FEW), cycle((_FEW, PLENTY, Limits(records=3, bytes=1 << 30, readers=1)))):
        run = SourceRun(case)
        run.to_the_end(iter(limits))
        require_same(run.read, _all(case), "what is read does not depend on how epochs are cut")


def limits_are_kept(case: SourceCase) -> None:
    """An epoch takes at most what it may; one unit of each partition is always allowed."""
    for records in (1, 2, 5):
        run = SourceRun(case)
        limits = Limits(records=records, bytes=1 << 30, readers=2)
        for _ in range(3):
            planned = run.step(limits)
            known = [split.records for split in planned.splits if split.records is not None]
            most = records + case.unit * max(1, len({split.partition for split in planned.splits}))
            require(sum(known) <= most, f"an epoch that may take {records} records is not planned with more", f"{planned.splits}")
        run.close()


def positions_are_json(case: SourceCase) -> None:
    """A position is small and survives JSON."""
    run = SourceRun(case)
    for _ in range(3):
        planned = run.step(Limits(records=2, bytes=1 << 30, readers=2))
        text = json.dumps(planned.position, allow_nan=False)
        require_same(json.dumps(json.loads(text)), text, "a position is the same after it was written as JSON")
        require(len(text) < _MOST_POSITION, "a position is small", f"{len(text)} bytes")
    run.close()


def a_split_can_be_read_again(case: SourceCase) -> None:
    """A split gives the same batches whenever it is read, whoever reads it."""
    run = SourceRun(case)
    for split in run.plan().splits:
        other = case.source.reader()
        once, again, elsewhere = (_batches(reader, split) for reader in (run.reader, run.reader, other))
        require_same(again, once, "a split that is read again gives the same batches")
        require_same(elsewhere, once, "another reader gives the same batches of a split")
        other.close()
    run.close()


def an_epoch_can_be_planned_again(case: SourceCase) -> None:
    """Asked again from the same position, a source may answer with more, but not with other data."""
    run = SourceRun(case)
    run.step(Limits(records=2, bytes=1 << 30, readers=2))
    first = _of_partitions(run, _FEW)
    run.close()
    again = _of_partitions(run, PLENTY)
    for partition, values in first.items():
        require_same(again.get(partition, [])[: len(values)], values, "a range that is planned again holds the same data")
    run.close()


def a_crash_between_any_two_calls_is_harmless(case: SourceCase) -> None:
    """The driver and the workers die between any two calls: nothing is lost, nothing is read twice."""
    limits = Limits(records=max(1, sum(map(len, case.expected.values())) // 3), bytes=1 << 30, readers=2)
    straight = SourceRun(case)
    straight.to_the_end(repeat(limits))
    for call in range(1, straight.calls + 1):
        run = SourceRun(case, crash_at=call)
        run.to_the_end(repeat(limits))
        require_same(run.read, _all(case), f"a crash before call {call} loses nothing and repeats nothing")


def it_may_be_told_twice_what_is_committed(case: SourceCase) -> None:
    """`committed` may be called again after recovery."""
    run = SourceRun(case)
    run.step(Limits(records=2, bytes=1 << 30, readers=2))
    for _ in range(2):
        run.enumerator.committed(run.position, Epoch(run.epoch))
    run.close()
    run.enumerator.committed(run.position, Epoch(run.epoch))
    run.to_the_end()
    require_same(run.read, _all(case), "to be told again what is committed changes nothing")


def partitions_are_named(case: SourceCase) -> None:
    """What has a split, or more to read, is among the partitions; what has more and may read gets a split."""
    run = SourceRun(case)
    for _ in range(3):
        planned = run.step(Limits(records=2, bytes=1 << 30, readers=2))
        named = set(planned.partitions) | {split.partition for split in planned.splits}
        if planned.more is not None:
            require(set(planned.more) <= named, "a partition that has more to read is named", f"{planned.more} of {named}")
    run.close()


def nothing_left_is_idle(case: SourceCase) -> None:
    """When all is read there is no split more, however often it is asked."""
    run = SourceRun(case)
    run.to_the_end()
    for _ in range(2):
        planned = run.plan()
        require_same(sum(len(run.records(split)) for split in planned.splits), 0, "what was read is not planned again")
        require(not case.source.bounded or planned.exhausted, "a bounded source that was read is exhausted")
    run.close()


def it_can_be_closed(case: SourceCase) -> None:
    """Close may be called on what was never used, and twice."""
    enumerator, reader = case.source.enumerator(case.context), case.source.reader()
    for _ in range(2):
        enumerator.close()
        reader.close()


def _batches(reader: Any, split: Split) -> list[list[Any]]:
    return [list(batch.values()) for batch in reader.read(split)]


def _of_partitions(run: SourceRun, limits: Limits) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for split in run.plan(limits).splits:
        found.setdefault(split.partition, []).extend(run.records(split))
    return found


SOURCE_CHECKS: tuple[SourceCheck, ...] = (
    it_is_a_definition,
    all_is_read_once_in_order,
    it_does_not_depend_on_the_cut,
    limits_are_kept,
    positions_are_json,
    a_split_can_be_read_again,
    an_epoch_can_be_planned_again,
    a_crash_between_any_two_calls_is_harmless,
    it_may_be_told_twice_what_is_committed,
    partitions_are_named,
    nothing_left_is_idle,
    it_can_be_closed,
)
"""All checks of sources."""

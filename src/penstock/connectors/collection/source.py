"""Values of the program as a bounded source.

The values are cut into `partitions` contiguous runs whose sizes differ by one at most. The position is an offset for each
partition; a split is a range, and the values travel with the definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from penstock.connectors.protocol import Enumerator, Limits, Planned, Position, Reader, SourceContext, Split
from penstock.errors import ConfigError, SourceError
from penstock.plan.row_schemas import columns_of_values
from penstock.plan.schema import Schema
from penstock.records import DICT_ROW, Batch, Records, RowType

_BATCH = 4096


class CollectionPosition(msgspec.Struct, frozen=True):
    """How far each partition has been read; `size` tells a changed collection from the one that was started with."""

    size: int
    offsets: list[int]


@dataclass(frozen=True, slots=True)
class CollectionSource:
    """The values given, in order, each with a timestamp if `timestamps` has one for each of them.

    `timestamps` are milliseconds or aware datetimes.
    """

    values: Any
    timestamps: Any = None
    partitions: int = 1
    _millis: tuple[int, ...] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if isinstance(self.values, str | bytes) or not isinstance(self.values, Iterable):
            raise ConfigError(
                f"a collection source needs a collection, not {type(self.values).__name__}",
                hint="pass a list, a tuple or another iterable",
            )
        values = tuple(self.values)
        object.__setattr__(self, "values", values)
        partitions: Any = self.partitions
        if not isinstance(partitions, int) or partitions < 1:
            raise ConfigError(f"partitions={partitions!r} is not valid", hint="give a whole number, 1 or more")
        if self.timestamps is None:
            return
        times = tuple(self.timestamps)
        object.__setattr__(self, "timestamps", times)
        if len(times) != len(values):
            raise ConfigError(f"{len(times)} timestamps for {len(values)} values", hint="give one timestamp for each value")
        object.__setattr__(self, "_millis", tuple(_millis(t) for t in times))

    @property
    def bounded(self) -> bool:
        return True

    @property
    def reads_in_order(self) -> bool:
        """An epoch may stop anywhere in its splits."""
        return True

    @property
    def row(self) -> RowType:
        return DICT_ROW

    def bounds(self, partition: int) -> tuple[int, int]:
        """The range of values that belong to a partition."""
        size = len(self.values)
        return partition * size // self.partitions, (partition + 1) * size // self.partitions

    def enumerator(self, context: SourceContext) -> CollectionEnumerator:
        return CollectionEnumerator(self)

    def reader(self) -> CollectionReader:
        return CollectionReader(self)

    def known_columns(self) -> Schema | None:
        return columns_of_values(self.values)

    def describe(self) -> str:
        return f"collection of {len(self.values)} values, {self.partitions} partition{'s' * (self.partitions > 1)}"


def _millis(value: Any) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigError(f"the timestamp {value} has no time zone", hint="use an aware datetime, or milliseconds")
        return round(value.timestamp() * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ConfigError(f"{value!r} is not a timestamp", hint="use milliseconds as int, or aware datetimes")


class CollectionEnumerator(Enumerator):
    def __init__(self, source: CollectionSource) -> None:
        self._source = source

    def plan(self, position: Position, limits: Limits, now_ms: int) -> Planned:
        source = self._source
        bounds = [source.bounds(k) for k in range(source.partitions)]
        at = self._resume(position, bounds)
        offsets = list(at.offsets)
        splits = []
        active = [k for k, (start, stop) in enumerate(bounds) if start + offsets[k] < stop]
        wanting = [k for k in active if str(k) not in limits.full]
        budget = limits.records
        for left, k in zip(range(len(wanting), 0, -1), wanting, strict=True):
            start, stop = bounds[k]
            begin = start + offsets[k]
            end = min(stop, begin + max(1, budget // left))
            splits.append(Split(partition=str(k), what=[begin, end], records=end - begin))
            offsets[k] = end - start
            budget -= end - begin
        remaining = len(source.values) - sum(offsets)
        return Planned(
            splits=splits,
            position=msgspec.to_builtins(CollectionPosition(at.size, offsets)),
            partitions=[str(k) for k in active],
            exhausted=remaining == 0,
            backlog=remaining,
            more=[str(k) for k in active if bounds[k][0] + offsets[k] < bounds[k][1]],
        )

    def reached(self, position: Position, goal: Position) -> bool | None:
        if position is None or goal is None:
            return goal is None
        here, there = msgspec.convert(position, CollectionPosition), msgspec.convert(goal, CollectionPosition)
        if here.size != there.size or len(here.offsets) != len(there.offsets):
            return None
        return all(a >= b for a, b in zip(here.offsets, there.offsets, strict=True))

    def _resume(self, position: Position, bounds: list[tuple[int, int]]) -> CollectionPosition:
        size = len(self._source.values)
        if position is None:
            return CollectionPosition(size, [0] * len(bounds))
        at = msgspec.convert(position, CollectionPosition)
        if at.size != size or len(at.offsets) != len(bounds):
            raise SourceError(
                "the collection is not the one this job was started with",
                detail=f"then: {at.size} values in {len(at.offsets)} partitions\nnow: {size} values in {len(bounds)} partitions",
                hint="restore the collection as it was, or start the step under another name",
                nature="configuration",
            )
        return at


class CollectionReader(Reader):
    def __init__(self, source: CollectionSource) -> None:
        self._source = source

    def read(self, split: Split) -> Iterator[Batch]:
        begin, end = split.what
        millis = self._source._millis
        for start in range(begin, end, _BATCH):
            stop = min(end, start + _BATCH)
            times = None if millis is None else np.array(millis[start:stop], dtype=np.int64)
            yield Records(list(self._source.values[start:stop]), times)

"""A source that does what its script says, an epoch at a time.

    ScriptedSource([("a", 1), Watermark(10), Crash(), ("a", 2), End()], cut=1)

The position is an offset into the script of each partition. Results must not depend on `cut`; that is what tests vary it for.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.connectors.protocol import Enumerator, Limits, Planned, Position, Reader, SourceContext, Split
from penstock.errors import ConfigError, EpochFailedError
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds
from penstock.records import DICT_ROW, NO_TIMESTAMP, Batch, Records, RowType
from penstock.testing.markers import Crash, Cut, End, Item, ProcessingTime, Record, Watermark, as_items
from penstock.timing.durations import Duration, to_ms
from penstock.timing.watermarks import PartitionClock, Watermarks


@dataclass(frozen=True)
class ScriptedSource:
    """One script, or with `ScriptedSource.of(...)` one for each partition. `cut`: records of a partition per epoch."""

    script: Any
    cut: int | None = None
    row: RowType = DICT_ROW
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    partitions: tuple[tuple[Item, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.partitions:
            object.__setattr__(self, "partitions", (as_items(self.script),))
        object.__setattr__(self, "script", None)
        if self.cut is not None and self.cut < 1:
            raise ConfigError(f"cut={self.cut} is not valid", hint="give the number of records of an epoch, 1 or more")
        for items in self.partitions:
            if any(isinstance(item, End) for item in items[:-1]):
                raise ConfigError("a script has items after End()", hint="End() is the last item")
        if any(isinstance(item, Crash) for items in self.partitions for item in items):
            atexit.register(shutil.rmtree, self._crash_folder, ignore_errors=True)

    @classmethod
    def of(cls, *scripts: Sequence[Any], cut: int | None = None) -> ScriptedSource:
        """A source with a partition for each script."""
        return cls((), cut=cut, partitions=tuple(as_items(script) for script in scripts))

    @property
    def bounded(self) -> bool:
        return all(items and isinstance(items[-1], End) for items in self.partitions)

    @property
    def _crash_folder(self) -> str:
        return os.path.join(tempfile.gettempdir(), f"penstock-crashes-{self.id}")

    def crashes(self, partition: int, offset: int, times: int) -> bool:
        """Whether to crash here now. What has happened is noted outside of any epoch, for all processes of this machine."""
        os.makedirs(self._crash_folder, exist_ok=True)
        for number in range(times):
            try:
                path = os.path.join(self._crash_folder, f"{partition}-{offset}-{number}")
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                return True
            except FileExistsError:
                continue
        return False

    def enumerator(self, context: SourceContext) -> ScriptEnumerator:
        return ScriptEnumerator(self)

    def reader(self) -> ScriptReader:
        return ScriptReader(self)

    def describe(self) -> str:
        return f"script of {len(self.partitions)} partition{'s' * (len(self.partitions) > 1)}"


class ScriptEnumerator(Enumerator):
    def __init__(self, source: ScriptedSource) -> None:
        self._source = source

    def plan(self, position: Position, limits: Limits, now_ms: Milliseconds) -> Planned:
        scripts = self._source.partitions
        offsets = list(position) if position is not None else [0] * len(scripts)
        open_partitions = [k for k, items in enumerate(scripts) if not _ended(items, offsets[k])]
        budget = self._source.cut or max(1, limits.records // max(1, len(open_partitions)))
        splits = []
        wakes = []
        for k in open_partitions:
            begin = offsets[k]
            end, records = self._reach(scripts[k], begin, budget, now_ms)
            if any(isinstance(item, Record | Watermark | Crash) for item in scripts[k][begin:end]):
                splits.append(Split(partition=str(k), what=[begin, end], records=records))
            offsets[k] = end
            if end < len(scripts[k]):
                waits_for = scripts[k][end]
                wakes.append(waits_for.time if isinstance(waits_for, ProcessingTime) else now_ms)
        return Planned(
            splits=splits,
            position=offsets,
            partitions=[str(k) for k in open_partitions],
            exhausted=all(_ended(items, offset) for items, offset in zip(scripts, offsets, strict=True)),
            wake_ms=min(wakes, default=MAX_WATERMARK),
            backlog=sum(self._reach(items, at, 1 << 60, now_ms)[1] for items, at in zip(scripts, offsets, strict=True)),
        )

    def shed(self, position: Position, now_ms: Milliseconds) -> tuple[Position, int]:
        """Skip what is there already, up to the newest record of each partition."""
        scripts = self._source.partitions
        offsets = list(position) if position is not None else [0] * len(scripts)
        skipped = 0
        for k, items in enumerate(scripts):
            there = range(offsets[k], self._reach(items, offsets[k], 1 << 60, now_ms)[0])
            records = [offset for offset in there if isinstance(items[offset], Record)]
            if records:
                skipped += len(records) - 1
                offsets[k] = records[-1]
        return offsets, skipped

    def _reach(self, items: tuple[Item, ...], begin: int, budget: int, now_ms: Milliseconds) -> tuple[int, int]:
        """How far an epoch reads from `begin`, and how many records that is."""
        records = 0
        for offset in range(begin, len(items)):
            item = items[offset]
            if isinstance(item, ProcessingTime) and item.time > now_ms:
                return offset, records
            if isinstance(item, Record):
                if records == budget:
                    return offset, records
                records += 1
            elif isinstance(item, Cut) and offset > begin:
                return offset, records
        return len(items), records


def _ended(items: tuple[Item, ...], offset: int) -> bool:
    return bool(items) and offset == len(items) and isinstance(items[-1], End)


class ScriptRecords(Records):
    """Records, and the watermark that the script has after them."""

    __slots__ = ("watermark",)

    def __init__(self, values: list[Any], timestamps: Any, watermark: Milliseconds | None) -> None:
        super().__init__(values, timestamps)
        self.watermark = watermark


class ScriptReader(Reader):
    def __init__(self, source: ScriptedSource) -> None:
        self._source = source

    def read(self, split: Split) -> Iterator[Batch]:
        partition = int(split.partition)
        begin, end = split.what
        run: list[Record] = []
        for offset in range(begin, end):
            item = self._source.partitions[partition][offset]
            if isinstance(item, Record):
                run.append(item)
            elif isinstance(item, Watermark):
                yield _batch(run, item.time)
                run = []
            elif isinstance(item, Crash):
                yield _batch(run, None)
                run = []
                if self._source.crashes(partition, offset, item.times):
                    raise EpochFailedError(f"the script of partition {partition} crashes at item {offset}")
        yield _batch(run, None)


def _batch(run: list[Record], watermark: Milliseconds | None) -> ScriptRecords:
    times = None
    if any(record.timestamp is not None for record in run):
        times = np.asarray([NO_TIMESTAMP if r.timestamp is None else r.timestamp for r in run], dtype=np.int64)
    return ScriptRecords([record.value for record in run], times, watermark)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedWatermarks(Watermarks[Any]):
    """Event time as the script says."""

    @property
    def by_records(self) -> bool:
        return True

    def clock(self, state: Any = None) -> PartitionClock:
        return ScriptClock(state)

    def describe(self) -> str:
        return "scripted"


class ScriptClock(PartitionClock):
    __slots__ = ()

    def __init__(self, state: Any) -> None:
        super().__init__(MIN_WATERMARK if state is None else state)

    def advance(self, batch: Batch) -> list[tuple[int, Milliseconds]]:
        if isinstance(batch, ScriptRecords) and batch.watermark is not None:
            self.watermark = max(self.watermark, batch.watermark)
        return [(len(batch), self.watermark)]

    def state(self) -> Any:
        return None if self.watermark == MIN_WATERMARK else self.watermark


def scripted_watermarks(*, idle: Duration | None = None) -> Watermarks[Any]:
    """The companion of `ScriptedSource`: its `Watermark(t)` items are the stream's watermarks."""
    return ScriptedWatermarks(idle_ms=None if idle is None else to_ms(idle, what="idle"))

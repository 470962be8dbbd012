"""A bounded source up to its end, then another one: history from files or a table, then a topic.

Law: nothing of the second source is read before the first is exhausted and all of it is planned; the position says which of
the two it is of. So every record of both is read exactly once, whatever happens at the switch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from penstock.connectors.protocol import (
    CountsSkipped,
    Enumerator,
    KnowsColumns,
    KnowsIdle,
    Limits,
    Planned,
    Position,
    Reader,
    ReadsInOrder,
    RejectsRecords,
    Source,
    SourceContext,
    Split,
)
from penstock.errors import ConfigError
from penstock.functions import Call, CallsFunctions
from penstock.ids import Epoch
from penstock.plan.definition import ErrorPolicy
from penstock.plan.schema import Schema, common_schema
from penstock.records import Batch, RowType

_HISTORY, _LIVE = 0, 1


@dataclass(frozen=True, slots=True)
class HybridSource:
    """`history` (a bounded source) to its end, then `live`. Both have records of the same kind.

    The point where one ends and the other begins is yours to say, in both: files up to a day, and
    `KafkaSource(start=datetime(…))` from that day on. Records of `live` that are older than what history has moved time to
    are late.
    """

    history: Source
    live: Source

    def __post_init__(self) -> None:
        for name in ("history", "live"):
            if not isinstance(getattr(self, name), Source):
                raise ConfigError(f"{name}={getattr(self, name)!r} is not a source")
        if not self.history.bounded:
            raise ConfigError(
                f"the history never ends: {self.history.describe()}",
                hint="give a bounded source, such as FileSource without watch=",
            )
        if self.history.row != self.live.row:
            raise ConfigError(
                "history and live have records of different kinds",
                detail=f"{self.history.row.cls} and {self.live.row.cls}",
                hint="give both the same schema",
            )

    @property
    def bounded(self) -> bool:
        return self.live.bounded

    @property
    def row(self) -> RowType:
        return self.live.row

    @property
    def reads_in_order(self) -> bool:
        return all(isinstance(source, ReadsInOrder) and source.reads_in_order for source in (self.history, self.live))

    @property
    def on_bad_record(self) -> ErrorPolicy:
        policies = [source.on_bad_record for source in (self.history, self.live) if isinstance(source, RejectsRecords)]
        return "dead_letter" if "dead_letter" in policies else "fail"

    def enumerator(self, context: SourceContext) -> HybridEnumerator:
        return HybridEnumerator(self, context)

    def reader(self) -> HybridReader:
        return HybridReader(self)

    def known_columns(self) -> Schema | None:
        known = [source.known_columns() if isinstance(source, KnowsColumns) else None for source in (self.history, self.live)]
        return common_schema(known)

    def function_calls(self) -> tuple[Call, ...]:
        return tuple(
            call for source in (self.history, self.live) if isinstance(source, CallsFunctions) for call in source.function_calls()
        )

    def describe(self) -> str:
        return f"{self.history.describe()}, then {self.live.describe()}"


class HybridEnumerator(Enumerator):
    def __init__(self, source: HybridSource, context: SourceContext) -> None:
        self._sources = (source.history, source.live)
        self._context = context
        self._open: dict[int, Enumerator] = {}
        self._asked = _HISTORY

    def plan(self, position: Position, limits: Limits, now_ms: int) -> Planned:
        phase, at = (_HISTORY, None) if position is None else position
        full = frozenset(name[2:] for name in limits.full if name.startswith(f"{phase}:"))
        self._asked = phase
        planned = self._enumerator(phase).plan(at, _with_full(limits, full), now_ms)
        if phase == _HISTORY and planned.exhausted:
            if not planned.splits:
                return self.plan([_LIVE, None], limits, now_ms)
            after: Any = [_LIVE, None]
        else:
            after = [phase, planned.position]
        return replace(
            planned,
            splits=[_marked(phase, split) for split in planned.splits],
            position=after,
            partitions=[f"{phase}:{name}" for name in planned.partitions],
            exhausted=planned.exhausted and phase == _LIVE,
            backlog=planned.backlog if phase == _LIVE or planned.backlog else None,
            more=None if planned.more is None else [f"{phase}:{name}" for name in planned.more],
        )

    def committed(self, position: Position, epoch: Epoch) -> None:
        phase, at = position
        if at is not None:
            self._enumerator(phase).committed(at, epoch)

    def idle(self) -> bool:
        enumerator = self._enumerator(self._asked)
        return enumerator.idle() if isinstance(enumerator, KnowsIdle) else True

    def close(self) -> None:
        for enumerator in self._open.values():
            enumerator.close()

    def _enumerator(self, phase: int) -> Enumerator:
        if phase not in self._open:
            self._open[phase] = self._sources[phase].enumerator(self._context)
        return self._open[phase]


class HybridReader(Reader):
    def __init__(self, source: HybridSource) -> None:
        self._sources = (source.history, source.live)
        self._open: dict[int, Reader] = {}

    @property
    def skipped(self) -> int:
        return sum(reader.skipped for reader in self._open.values() if isinstance(reader, CountsSkipped))

    def read(self, split: Split) -> Iterator[Batch]:
        phase, what = split.what
        if phase not in self._open:
            self._open[phase] = self._sources[phase].reader()
        yield from self._open[phase].read(Split(split.partition[2:], what, split.records, split.bytes, split.estimated))

    def close(self) -> None:
        for reader in self._open.values():
            reader.close()


def _marked(phase: int, split: Split) -> Split:
    return Split(f"{phase}:{split.partition}", [phase, split.what], split.records, split.bytes, split.estimated)


def _with_full(limits: Limits, full: frozenset[str]) -> Limits:
    return Limits(limits.records, limits.bytes, limits.readers, full)

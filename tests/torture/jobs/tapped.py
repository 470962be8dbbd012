"""A generator behind a tap: somebody else says how many events there are by now, and when there will be no more.

The tap is a file, `{"events": 1200, "last": false}`, replaced as a whole. `last` is said once, and the number is final.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock import GeneratorSource
from penstock.connectors.protocol import Enumerator, Limits, Planned, Position, Reader, SourceContext
from penstock.ids import Epoch
from penstock.records import RowType

ASK_AGAIN_MS = 100


@dataclass(frozen=True, slots=True)
class Tap:
    events: int
    last: bool = False

    @staticmethod
    def read(path: str) -> Tap:
        with open(path) as file:
            return Tap(**json.load(file))

    def write(self, path: Path) -> None:
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"events": self.events, "last": self.last}))
        new.replace(path)


@dataclass(frozen=True, slots=True)
class TappedSource:
    """`function(n)` for the numbers that the tap has let through."""

    generator: GeneratorSource
    tap: str

    @staticmethod
    def of(function: Callable[[int], Any], tap: str, *, partitions: int, batch_size: int) -> TappedSource:
        return TappedSource(GeneratorSource(function, partitions=partitions, batch_size=batch_size), tap)

    @property
    def bounded(self) -> bool:
        return True

    @property
    def row(self) -> RowType:
        return self.generator.row

    def enumerator(self, context: SourceContext) -> TapEnumerator:
        return TapEnumerator(self.generator.enumerator(context), self.generator.partitions or 1, self.tap)

    def reader(self) -> Reader:
        return self.generator.reader()

    def describe(self) -> str:
        return f"{self.generator.describe()}, tapped"


class TapEnumerator:
    def __init__(self, inner: Enumerator, partitions: int, tap: str) -> None:
        self._inner = inner
        self._partitions = partitions
        self._tap = tap

    def plan(self, position: Position, limits: Limits, now_ms: int) -> Planned:
        tap = Tap.read(self._tap)
        read = 0 if position is None else position["next"]
        if read < tap.events:
            taken = max(1, min(limits.records, tap.events - read))
            planned = self._inner.plan(position, Limits(taken, limits.bytes), now_ms)
            return replace(planned, exhausted=tap.last and read + taken == tap.events, backlog=tap.events - read - taken)
        partitions = [] if tap.last else [str(number) for number in range(self._partitions)]
        return Planned(position=position, partitions=partitions, exhausted=tap.last, wake_ms=now_ms + ASK_AGAIN_MS, backlog=0)

    def committed(self, position: Position, epoch: Epoch) -> None:
        self._inner.committed(position, epoch)

    def close(self) -> None:
        self._inner.close()

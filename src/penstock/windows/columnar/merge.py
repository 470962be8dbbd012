"""Behind the exchange: what every kind of windows over columns has.

Law: rows become state by change: an epoch's rows of a time and key group are a chunk of their own. See `chunk_state`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.ids import Milliseconds, StepId
from penstock.plan.definition import Definition, StateDeclaration, Takes
from penstock.records import Columns
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services
from penstock.state.encoding.keys import key_codec
from penstock.state.key_groups import groups_of
from penstock.windows.aggregates import Aggregate
from penstock.windows.columnar.chunk_state import ChunkState
from penstock.windows.columnar.chunks import Chunk, KeyIndex
from penstock.windows.columnar.measures import Vectors
from penstock.windows.columnar.measuring import measure_of
from penstock.windows.columnar.partial import from_columns, unnamed
from penstock.windows.columnar.results import results
from penstock.windows.columnar.vectors import Rows
from penstock.windows.declared import Declared
from penstock.windows.step import WindowStep


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStep(Definition):
    """Windows over what a `PartialStep` sends. `shared`: the aggregates that it sends; `window`: the step the user wrote."""

    window: WindowStep
    shared: tuple[Aggregate, ...]
    state: ClassVar[str]

    @property
    def kind(self) -> str:
        return self.window.kind

    def function(self) -> Any:
        return self.window.function()

    def takes(self, given: int) -> tuple[Takes, ...]:
        return self.window.takes(given) * 2

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return (
            StateDeclaration(
                step=step,
                name=self.state,
                state=None,
                kind=self.state,
                key_type=self.window.key_type,
                key_fields=self.window.key_fields,
                what=self.window.kept(),
            ),
        )


class MergeOperator(Operator):
    """Input 0: rows, with `times` vectors of times before those of the aggregates. Input 1: stragglers."""

    times: ClassVar[int]

    def __init__(self, step: StepId, services: Services, inputs: int, definition: MergeStep) -> None:
        super().__init__(step, services, inputs)
        declared = definition.window.body.incremental
        assert isinstance(declared, Declared)
        self.spec = definition.window.spec
        self.declared = declared
        self.measures = [measure_of(one) for one in declared.aggregates]
        self.index = KeyIndex(key_codec(definition.window.key_type))
        self._mine = [definition.shared.index(unnamed(one)) for one in declared.aggregates]
        self._widths = [self.times, *(measure_of(one).sent for one in definition.shared)]
        self._timed = any(measure.timed for measure in self.measures)
        self.before: Milliseconds = self.watermark
        """Where time was before it advanced."""
        self._turn = int(services.order.epoch) << 32
        services.opened(step, None)
        state_id = services.state_id(step, definition.state)
        self.state = ChunkState(
            services.committed,
            state_id=state_id,
            groups=groups_of(services.partition, services.job.parallelism, services.job.max_parallelism),
            next_due=services.committed.partition_state.next_due.get(state_id),
            key_groups=services.job.key_groups,
            index=self.index,
            merge=self.merge_chunks,
            what=definition.window.kept(),
            where=f"step {step!r}",
            due=self.due,
        )
        services.keyed.append(self.state)

    def on_input(self, port: int, batch: Keyed) -> None:
        self.records_in += len(batch)
        if port == 1:
            self.take_stragglers(batch)
            return
        assert isinstance(batch.batch, Columns)
        times, *vectors = from_columns(batch.batch.data, self._widths)
        keys = self.index.numbers(batch.keys)[batch.codes]
        self.take(Chunk(keys, [times, *self.arrived([vectors[number] for number in self._mine], len(keys))]))

    def arrived(self, vectors: list[Vectors], rows: int) -> list[Vectors]:
        """What was sent, or made of stragglers, with its place in the order of arrival."""
        if not self._timed:
            return vectors
        turns = np.arange(self._turn, self._turn + rows)
        self._turn += rows
        clock = self.services.processing_time
        return [measure.arrived(mine, clock, turns) for measure, mine in zip(self.measures, vectors, strict=True)]

    def on_watermark(self, watermark: Milliseconds | None) -> None:
        self.before = self.watermark
        super().on_watermark(watermark)
        self.before = self.watermark

    def take(self, rows: Chunk) -> None:
        """Keep rows; the first vectors are times."""
        raise NotImplementedError

    def take_stragglers(self, batch: Keyed) -> None:
        """Records, each of which may be late."""
        raise NotImplementedError

    def merge_chunks(self, chunks: Sequence[Chunk]) -> Chunk:
        """One chunk of several of one time."""
        raise NotImplementedError

    def due(self, time: Milliseconds) -> Milliseconds:
        """When something is to be done about the chunks of a time next."""
        raise NotImplementedError

    def emit(self, keys: Rows, starts: Rows, ends: Rows, vectors: list[Vectors]) -> None:
        """The results of windows, a row each. Where a step that sees order follows, they are in order of end and key, and have
        the tick before the end, but none before the last."""
        if not len(keys):
            return
        decoded = self.index.decoded()
        ticks = None
        if self.ordered:
            encoded = self.index.encoded
            order = np.asarray(sorted(range(len(keys)), key=lambda row: (ends[row], encoded[keys[row]])), dtype=np.int64)
            keys, starts, ends = keys[order], starts[order], ends[order]
            vectors = [[vector[order] for vector in each] for each in vectors]
            ticks = np.maximum(ends - 2, self.before)
        shown = [decoded[key] for key in keys.tolist()]
        self.outputs.emit(results(self.step, self.declared, self.measures, shown, starts, ends, vectors).with_ticks(ticks))

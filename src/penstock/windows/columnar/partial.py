"""Before the exchange: a batch becomes a row for each key and slice, or run of a session.

Law: a record whose slice or session the step's own watermark has passed may be late where it arrives: it is a *straggler*, and
travels as it is, on a side output. All others cannot be late there, for that watermark is not above this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import PlanError, UserCodeError
from penstock.ids import StepId
from penstock.plan.definition import Definition
from penstock.plan.exchange import Exchange, no_key
from penstock.records import DICT_ROW, NO_TIMESTAMP, Batch, Columns
from penstock.runtime.exchange import distinct_keys
from penstock.runtime.fields import fields_of
from penstock.runtime.frames import Codes, Keyed
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services
from penstock.state.encoding.keys import key_codec
from penstock.windows.aggregates import Aggregate
from penstock.windows.columnar.chunks import Chunk
from penstock.windows.columnar.measures import Vectors
from penstock.windows.columnar.measuring import measure_of
from penstock.windows.columnar.vectors import OBJECT, Mask, Rows, Vector, dump_vector, load_vector, vector_of
from penstock.windows.step import no_timestamp

STRAGGLERS = "stragglers"
"""The side output of records that may be late."""

FAR = 1 << 61
"""Times beyond this would overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialStep(Definition):
    """Aggregates each batch by key and time, for `window` (and others). `whole_records`: late records are wanted as they were."""

    window: StepId
    exchange: Exchange
    aggregates: tuple[Aggregate, ...]
    whole_records: bool = False
    ordered: ClassVar[bool] = False
    """Whether it matters for a straggler which other records came before it."""

    @property
    def kind(self) -> str:
        return "window partial aggregation"

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The only columns it uses; None if that is not known."""
        selector = self.exchange.selector
        if selector is no_key:
            selector = ()
        if self.whole_records or selector is None or callable(selector):
            return None
        fields = [*selector, *(one.field for one in self.aggregates if one.field is not None)]
        return tuple(dict.fromkeys(str(field) for field in fields)) if all(isinstance(field, str) for field in fields) else None

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        return None if self.columns is None else frozenset(self.columns)

    def last_moments(self, times: Rows) -> Rows:
        """When what a record is put into is over."""
        raise NotImplementedError

    def rows(self, batch: Batch, codes: Codes, times: Rows, keys: int, step: StepId) -> Chunk:
        """The rows of a batch, with the keys' codes; the first vectors are times."""
        raise NotImplementedError

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return PartialOperator(step, services, self)


class PartialOperator(Operator):
    def __init__(self, step: StepId, services: Services, definition: PartialStep) -> None:
        super().__init__(step, services)
        self._definition = definition
        self._codec = key_codec(definition.exchange.key_type)

    def on_batch(self, batch: Batch) -> None:  # type: ignore[override]
        self.records_in += len(batch)
        times = timestamps(batch, self._definition.window)
        behind = self._definition.last_moments(times) <= self.watermark
        if not behind.any():
            self._send(batch, times)
        elif self._definition.ordered:
            bounds = [0, *(np.flatnonzero(np.diff(behind)) + 1).tolist(), len(batch)]
            for start, stop in pairwise(bounds):
                self._send_or_pass_on(batch.slice(start, stop), times[start:stop], bool(behind[start]))
        else:
            for late in (True, False):
                rows = np.flatnonzero(behind == late)
                self._send_or_pass_on(batch.take(rows), times[rows], late)

    def _send_or_pass_on(self, batch: Batch, times: Rows, stragglers: bool) -> None:
        if stragglers:
            self.outputs.emit_side(STRAGGLERS, batch)
        elif len(batch):
            self._send(batch, times)

    def _send(self, batch: Batch, times: Rows) -> None:
        definition = self._definition
        keys, codes = distinct_keys(batch, definition.exchange, self._codec, definition.window)
        rows = definition.rows(batch, codes, times, len(keys), definition.window)
        self.outputs.emit(Keyed(Columns(as_columns(rows.vectors), DICT_ROW), keys, rows.keys.astype(np.int32)))  # type: ignore[arg-type]


def partials(batch: Batch, groups: Rows, size: int, aggregates: tuple[Aggregate, ...], step: str) -> list[Vectors]:
    """The vectors of each aggregate that are sent, by group."""
    out = []
    for aggregate in aggregates:
        measure = measure_of(aggregate)
        values, valid = values_of_field(batch, aggregate, step)
        mine = groups
        if valid is not None:
            values, mine = values[valid], groups[valid]
        try:
            if measure.timed:
                times = timestamps(batch, step)
                out.append(measure.partial_at(values, mine, size, times if valid is None else times[valid]))
            else:
                out.append(measure.partial(values, mine, size))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise cannot_be_computed(aggregate, step, error) from error
    return out


def cannot_be_computed(aggregate: Aggregate, step: str, error: Exception) -> UserCodeError:
    return UserCodeError(
        f"step {step!r}: {aggregate.describe()} cannot be computed: {type(error).__name__}: {error}",
        hint="are the values of this field of one kind, and numbers where there is arithmetic? With columnar=False the message "
        "names the record",
    )


def unnamed(aggregate: Aggregate) -> Aggregate:
    """The aggregate under its usual name: two that are equal then are one."""
    return aggregate.named("")


def timestamps(batch: Batch, step: str) -> Rows:
    """The batch's timestamps, all of them."""
    times = batch.timestamps
    if times is None or (times == NO_TIMESTAMP).any():
        row = 0 if times is None else int(np.flatnonzero(times == NO_TIMESTAMP)[0])
        raise no_timestamp(step, batch.values()[row])
    if int(times.max()) > FAR or int(times.min()) < -FAR:
        raise PlanError(
            f"step {step!r}: a timestamp is millions of years away",
            detail=f"the timestamps of a batch are from {times.min()} to {times.max()} ms",
            hint="timestamps are milliseconds since 1970; with aggregate(..., columnar=False) any will do",
        )
    return times


def values_of_field(batch: Batch, aggregate: Aggregate, step: str) -> tuple[Vector, Mask | None]:
    field = aggregate.field
    if field is None:
        return np.ones(len(batch), dtype=np.int64), None
    assert not callable(field)
    if isinstance(batch, Columns):
        names = batch.data.schema.names
        if field not in names and not (isinstance(field, int) and field < len(names)):
            raise PlanError(
                f"step {step!r}: {aggregate.describe()}: there is no such column",
                detail=f"columns: {', '.join(names)}",
                hint="name one of the columns",
            )
        return vector_of(batch.data.column(field))
    return vector_of(fields_of(batch.values(), field, step))


# --- rows as columns, for the way through the exchange ---------------------------------------------------------------------


def as_columns(vectors: list[Vectors]) -> pa.RecordBatch:
    arrays = []
    for vector in (vector for each in vectors for vector in each):
        if vector.dtype == OBJECT:
            arrays.append(pa.array([dump_vector(vector[row : row + 1])[1] for row in range(len(vector))], type=pa.binary()))
        else:
            arrays.append(pa.array(vector))
    return pa.RecordBatch.from_arrays(arrays, names=[f"v{number}" for number in range(len(arrays))])


def from_columns(data: pa.RecordBatch, widths: list[int]) -> list[Vectors]:
    """The inverse of `as_columns`; `widths` says how many vectors belong together."""
    flat = iter([_vector(column) for column in data.columns])
    return [[next(flat) for _ in range(width)] for width in widths]


def _vector(column: pa.Array) -> Vector:
    if pa.types.is_binary(column.type):
        return np.concatenate([load_vector("any", blob) for blob in column.to_pylist()])
    vector: Vector = column.to_numpy()
    return vector

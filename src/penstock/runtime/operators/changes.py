"""From rows to changes and back: `as_changes(kind)` and `changes_as_rows(kind)`.

Laws:
- A row is the change that its field, or the function, says. What says no kind is rejected, like a record that a function raises
  on.
- The order of the rows stays, and what they carry beside their values.
- `changes_as_rows(f)` and `as_changes(f)` undo each other; a row becomes a dict on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.changes import ANY_CHANGES, APPENDS, Changes, kind_code, with_kind_field
from penstock.errors import PlanError, UserCodeError, did_you_mean
from penstock.functions import Call, call_of, life_cycle
from penstock.ids import StepId
from penstock.plan.definition import Definition, ErrorPolicy
from penstock.plan.schema import Schema
from penstock.records import DICT_ROW, NO_TIMESTAMP, Batch, Columns, Kinds, Records, as_dict, carried
from penstock.runtime.frames import Payload, unkeyed
from penstock.runtime.operators.expressions import WrittenAt
from penstock.runtime.operators.operator import Operator, method_of
from penstock.runtime.operators.stateless import PerRecord
from penstock.runtime.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class AsChanges(Definition):
    """Each row becomes a change, of the kind that a function says."""

    body: Any

    @property
    def kind(self) -> str:
        return "as_changes"

    def function(self) -> Any:
        return self.body

    def calls(self) -> tuple[Call, ...]:
        return call_of(self.body, "kind", "value"), *life_cycle(self.body)

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        return ANY_CHANGES

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return inputs[0]

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return ByFunction(step, services, services.opened(step, self.body), self.errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsChangesByField(Definition):
    """Each row becomes a change, of the kind that is in a field, which is taken out of the row."""

    field: str
    names_columns: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return f"as_changes by {self.field}"

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        return ANY_CHANGES

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        (given,) = inputs
        if given is None:
            return None
        if self.field not in given.names:
            raise _no_field(self.field, given.names)
        return Schema.of((name, kind) for name, kind in given.fields().items() if name != self.field)

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        return None if wanted is None or self.errors == "dead_letter" else wanted | {self.field}

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return ByField(step, services, self.field, self.errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesAsRows(Definition):
    """Each change becomes a row, with its kind in a field."""

    field: str
    names_columns: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return f"changes_as_rows with {self.field}"

    @property
    def accepts(self) -> Changes:
        return ANY_CHANGES

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        return APPENDS

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        (given,) = inputs
        if given is None:
            return None
        if self.field in given.names:
            raise PlanError(f"the records have a field {self.field!r} already", hint=_ANOTHER)
        return Schema.of({**given.fields(), self.field: pa.string()}.items())

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        return None if wanted is None else wanted - {self.field}

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return AsRows(step, services, self.field)


_MEND = (
    "mend the input, or give as_changes a function that makes a kind of a record; "
    'errors="skip" or errors="dead_letter" on the step let the others pass'
)
_ANOTHER = 'give the kind another name, such as changes_as_rows("change")'
_NOTHING = object()


def _no_field(field: str, names: Sequence[str], where: str = "") -> PlanError:
    hint = did_you_mean(field, names) or "name the field that says of each row whether it is +I, -U, +U or -D"
    return PlanError(f"{where}the records have no field {field!r}", detail=f"fields: {', '.join(names)}", hint=hint)


class ByFunction(PerRecord):
    def __init__(self, step: StepId, services: Services, function: Any, errors: ErrorPolicy) -> None:
        super().__init__(step, services, function, errors)
        said = method_of(function, "kind")
        self.call = lambda record: kind_code(said(record))

    def run(self, batch: Batch) -> None:
        codes, mask = self.applied(batch)
        if mask is not None:
            rows = np.flatnonzero(mask)
            batch, codes = batch.take(rows), [codes[row] for row in rows.tolist()]
        self.outputs.emit(batch.with_kinds(np.asarray(codes, dtype=np.int8)))


class ByField(Operator):
    """Over columns each distinct value is looked at once."""

    def __init__(self, step: StepId, services: Services, field: str, errors: ErrorPolicy) -> None:
        super().__init__(step, services)
        self._field = field
        self.errors = errors

    def on_batch(self, batch: Payload) -> None:
        self.records_in += len(batch)
        batch = unkeyed(batch)
        if not len(batch):
            return
        kinds, rest = self._of_columns(batch) if isinstance(batch, Columns) else self._of_records(batch)
        if (kinds < 0).any():
            for row in np.flatnonzero(kinds < 0).tolist():
                self._reject(batch, row)
            rows = np.flatnonzero(kinds >= 0)
            kinds, rest = kinds[rows], rest.take(rows)
        self.outputs.emit(rest.with_kinds(kinds))

    def _of_columns(self, batch: Columns) -> tuple[Kinds, Batch]:
        names = list(batch.row.fields() or batch.data.schema.names)
        if self._field not in names:
            raise _no_field(self._field, names, f"step {self.step!r}: ")
        said = batch.data.column(self._field)
        if not pa.types.is_dictionary(said.type):
            said = said.dictionary_encode("encode")
        codes = _codes(said.dictionary.to_pylist())
        missing = len(codes) - 1  # of a null that is not among the values
        where = said.indices.fill_null(missing).to_numpy(zero_copy_only=False)
        rest = batch.data.select([name for name in names if name != self._field])
        return codes[where], Columns(rest, DICT_ROW, *carried(batch))

    def _of_records(self, batch: Batch) -> tuple[Kinds, Batch]:
        rows = list(map(as_dict, batch.values()))
        codes = _codes([row.pop(self._field, _NOTHING) for row in rows])[:-1]
        return codes, Records(rows, *carried(batch))

    def _reject(self, batch: Batch, row: int) -> None:
        record = batch.values()[row]
        try:
            fields = as_dict(record)
            if self._field not in fields:
                raise KeyError(f"the record has no field {self._field!r}")
            kind_code(fields[self._field])
        except (KeyError, ValueError) as error:
            if self.errors == "fail":
                raise UserCodeError(
                    f"step {self.step!r}: {error.args[0]}",
                    detail=f"field: {self._field}\nrecord: {record!r:.500}",
                    hint=_MEND,
                ) from error
            time = NO_TIMESTAMP if batch.timestamps is None else int(batch.timestamps[row])
            self.set_aside(error, WrittenAt(f"as_changes({self._field!r})", ""), record, time)


class AsRows(Operator):
    def __init__(self, step: StepId, services: Services, field: str) -> None:
        super().__init__(step, services)
        self._field = field

    def on_batch(self, batch: Payload) -> None:
        self.records_in += len(batch)
        if len(batch):
            try:
                out = with_kind_field(unkeyed(batch), self._field)
            except ValueError as error:
                raise PlanError(f"step {self.step!r}: {error}", hint=_ANOTHER) from error
            self.outputs.emit(out)


def _codes(said: list[Any]) -> Kinds:
    """The code of each value, -1 for what is no kind; and -1 at the end."""
    codes = np.full(len(said) + 1, -1, dtype=np.int8)
    for row, value in enumerate(said):
        try:
            codes[row] = kind_code(value)
        except ValueError:
            pass
    return codes

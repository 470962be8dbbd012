"""Changes: how a stream corrects what it said before.

A stream that only adds rows is *append-only*: its batches carry no kinds, and cost nothing for those of others. In a stream that
*updates*, each record is a change of a table: `+I` adds a row, `-U` takes back the old version of a row and `+U` gives the new
one, `-D` takes a row away. Steps and sinks declare which kinds they take (`Definition.accepts`, `Sink.changelog`).

Law: the changes of one key stay in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.experimental import experimental
from penstock.records import DICT_ROW, Batch, Columns, Records, as_dict

__all__ = ["RowChange", "RowKind"]


@experimental
class RowKind(StrEnum):
    """What a record does to the table that its stream describes.

    >>> RowKind.UPDATE_AFTER == "+U", RowKind("-D").name, RowKind.DELETE.code
    (True, 'DELETE', 3)
    """

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"

    @property
    def code(self) -> int:
        """The number that stands for it in batches; the same as Flink's."""
        return _CODES[self]


KINDS = tuple(RowKind)
"""By code."""

Changes: TypeAlias = frozenset[RowKind]
"""The kinds of change that a stream may have."""

APPENDS: Changes = frozenset({RowKind.INSERT})
ANY_CHANGES: Changes = frozenset(RowKind)

Changelog = Literal["append", "upsert", "retract"]
"""What a sink takes: rows that are added; the newest row of each key, and deletions (`-U` is left out); all changes."""


@experimental
class RowChange(NamedTuple):
    """A record with its kind, as sinks show it.

    >>> print(RowChange(RowKind.DELETE, {"user": "ann"}))
    -D {'user': 'ann'}
    """

    kind: RowKind
    record: Any

    def __str__(self) -> str:
        return f"{self.kind} {self.record}"


_CODES: dict[Hashable, int] = {known: code for code, kind in enumerate(KINDS) for known in (str(kind), code)}


def kind_code(value: Any) -> int:
    """The code of a kind that is given as a `RowKind`, as `"+I"` and so on, or as its code."""
    try:
        if type(value) is not bool:
            return _CODES[value]
    except (KeyError, TypeError):
        pass
    raise ValueError(f"{value!r:.100} is no kind of change: expected one of {', '.join(KINDS)}")


def kinds_text(changes: Changes) -> str:
    """
    >>> kinds_text(ANY_CHANGES)
    '+I, -U, +U, -D'
    """
    return ", ".join(kind for kind in KINDS if kind in changes)


# --- batches ---------------------------------------------------------------------------------------------------------------

_COLUMN = pa.array([str(kind) for kind in KINDS])


def changes_in(batch: Batch) -> list[Any]:
    """The records as a person sees them: as changes, if the stream updates."""
    if batch.kinds is None:
        return batch.values()
    return list(map(RowChange, map(KINDS.__getitem__, batch.kinds.tolist()), batch.values()))


def with_kind_field(batch: Batch, name: str, names: Sequence[str] | None = None) -> Batch:
    """Rows with their kind as one more field, a text, and no kinds beside them. `ValueError` if there is such a field.

    `names`: of the fields of records that have no names.
    """
    kinds = np.zeros(len(batch), dtype=np.int8) if batch.kinds is None else batch.kinds
    beside = (batch.timestamps, batch.ticks)
    if isinstance(batch, Columns):
        fields = batch.row.fields()
        data = batch.data if fields is None else batch.data.select(list(fields))
        if name in data.schema.names:
            raise ValueError(f"the records have a field {name!r} already")
        return Columns(data.append_column(name, _COLUMN.take(pa.array(kinds))), DICT_ROW, *beside)
    rows = [as_dict(value, names) for value in batch.values()]
    for row, kind in zip(rows, kinds.tolist(), strict=True):
        if name in row:
            raise ValueError(f"the records have a field {name!r} already")
        row[name] = str(KINDS[kind])
    return Records(rows, *beside)

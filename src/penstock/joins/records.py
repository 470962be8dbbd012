"""`select(...)` record by record."""

from __future__ import annotations

from typing import Any

from penstock.joins.columns import JoinedColumns
from penstock.joins.functions import JoinFunction
from penstock.joins.spec import LEFT, RIGHT
from penstock.plan.schema import Schema
from penstock.records import as_dict


class SelectColumns(JoinFunction[Any, Any, dict[str, Any]]):
    """A dict of columns of both records; of one that is not there they are None."""

    def __init__(self, columns: JoinedColumns) -> None:
        self.columns = columns

    def join(self, left: Any, right: Any) -> dict[str, Any]:
        columns = self.columns
        rows = tuple({} if record is None else as_dict(record) for record in (left, right))
        names = [_names(rows[side], record, columns.known[side]) for side, record in ((LEFT, left), (RIGHT, right))]
        found: dict[str, Any] = {}
        for output in columns.outputs(names[0], names[1]):
            value = rows[output.side].get(output.column)
            if output.otherwise is not None and left is None:
                value = rows[RIGHT].get(output.otherwise)
            found[output.name] = value
        return found


def _names(row: dict[str, Any], record: Any, known: Schema | None) -> tuple[str, ...]:
    return known.names if record is None and known is not None else tuple(row)

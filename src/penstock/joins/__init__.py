"""Joins: streams that meet by key, and what is looked up in a table.

    spec: what is joined, and how       plan: a `Definition`       operator: the logic in a worker

`interval/` joins records whose times are near, record by record or over columns; `buffer/` is what waits for partners over
columns; `window/`, `temporal/` and `regular/` are keyed functions; `static/` looks up in a table. `columns` are results that are
columns of both sides, `functions` what a person implements. Importing this package registers the kind of state of joins over
columns. Imports `plan/`, `runtime/`, `state/`, `storage/`, `timing/` and `windows/`.
"""

from penstock.joins.buffer.kind import JOIN_ROWS
from penstock.joins.functions import CoGroupFunction, JoinContext, JoinFunction, ProcessJoinFunction
from penstock.state.entries.kinds import register

__all__ = ["CoGroupFunction", "JoinContext", "JoinFunction", "ProcessJoinFunction"]

register((JOIN_ROWS,))

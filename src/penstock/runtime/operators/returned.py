"""What a user's function returned where it may give any number of records.

Several records are a generator, another iterator, a list, a tuple, a set, a range or a view of a dict. Anything else is one
record that was returned instead of yielded: taken apart, it would come out as its letters, keys or numbers.

Functions return the same type again and again: in hot loops only a type other than the last one is looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, KeysView, ValuesView
from collections.abc import Set as AbstractSet
from types import GeneratorType
from typing import Any

import pyarrow as pa

from penstock.errors import ReturnedValueError
from penstock.functions import function_location

_SEVERAL = frozenset((GeneratorType, list, tuple, set, frozenset, range, deque))
_KINDS = (list, set, frozenset, deque, Iterator, AbstractSet, KeysView, ValuesView)


_YIELD = "to emit it as one record, yield it, or return it in a list; to emit what it holds, return list(...) of it"


def as_records(result: Any, step: str, function: Any, method: str, hint: str = _YIELD) -> Iterable[Any]:
    """The result, if it is several records; otherwise an error that says what to do."""
    kind = type(result)
    if kind in _SEVERAL or isinstance(result, _KINDS) or (isinstance(result, tuple) and not hasattr(result, "_fields")):
        return result  # type: ignore[no-any-return]
    raise ReturnedValueError(
        f"step {step!r}: {method} returned one value, of type {kind.__qualname__}, where records are yielded",
        detail=f"function: {function_location(function)}\nreturned: {result!r:.300}",
        hint=hint,
    )


def rows_of(result: Any, step: str, function: Any, method: str) -> pa.RecordBatch | pa.Table | list[Any]:
    """What a function of whole batches returned: columns, or a list of records. A DataFrame loses its index."""
    if isinstance(result, pa.RecordBatch | pa.Table):
        return result
    if is_frame(result):
        return pa.Table.from_pandas(result, preserve_index=False).combine_chunks()
    if type(result) is not list and not isinstance(result, Iterator):
        hint = "return a RecordBatch, a Table, a DataFrame, or a list of records"
        return list(as_records(result, step, function, method, hint=hint))
    rows = list(result)
    if rows and (isinstance(rows[0], pa.RecordBatch | pa.Table) or is_frame(rows[0])):
        raise ReturnedValueError(
            f"step {step!r}: {method} gave several batches of rows, where one is returned",
            detail=f"function: {function_location(function)}\nthe first is of type {type(rows[0]).__qualname__}",
            hint="return it instead of yielding it; several can be put together, with pa.concat_tables or pd.concat",
        )
    return rows


def is_frame(result: Any) -> bool:
    """Whether it is a DataFrame of pandas, which may not be there."""
    return hasattr(result, "columns") and hasattr(result, "iloc")

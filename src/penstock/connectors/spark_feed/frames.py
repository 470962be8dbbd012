"""DataFrames by name, on the driver.

A definition travels to the workers, a DataFrame cannot: the definition holds the name. Names are counted, so that the same
program gives the same names when it is started again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import SourceError
from penstock.plan.row_schemas import row_schema
from penstock.plan.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_frames: dict[str, DataFrame] = {}
_lock = threading.Lock()


def remember(frame: DataFrame) -> str:
    with _lock:
        for name, known in _frames.items():
            if known is frame:
                return name
        name = f"frame-{len(_frames) + 1}"
        _frames[name] = frame
        return name


def recall(name: str) -> DataFrame:
    with _lock:
        frame = _frames.get(name)
    if frame is None:
        raise SourceError(
            f"the DataFrame of this source ({name}) is not known in this process",
            hint="a DataFrame lives where it was made: build the source in the program that runs the job",
        )
    return frame


def columns_of(name: str, record: type | None) -> Schema | None:
    """The columns of a DataFrame's rows; None if it is not known in this process."""
    if record is not None:
        return row_schema(record)
    with _lock:
        frame = _frames.get(name)
    if frame is None:
        return None
    from pyspark.sql.pandas.types import to_arrow_type

    return Schema.of((field.name, _arrow(to_arrow_type, field.dataType)) for field in frame.schema.fields)


def _arrow(to_arrow_type: Callable[..., Any], kind: Any) -> Any:
    """The Arrow type of plain columns; None for those that Spark writes in a way of its own."""
    try:
        return to_arrow_type(kind)
    except Exception:  # a type that only Spark knows
        return None

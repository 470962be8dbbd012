"""Where the tables of enrichment come from: an Arrow table, files, a Spark DataFrame, or a function."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.dataset

from penstock.errors import PlanError, SourceError
from penstock.functions import function_location
from penstock.ids import Milliseconds
from penstock.plan.schema import Schema
from penstock.storage.tables import encode_table

FORMATS = ("parquet", "csv", "json", "arrow", "feather", "orc")


@runtime_checkable
class _DataFrame(Protocol):
    """A DataFrame of Spark."""

    def toArrow(self) -> pa.Table: ...  # noqa: N802 - its name there


class GivenTable:
    """What `enrich(...)` was given; `given` stays on the driver: a worker reads what the driver has loaded."""

    def __init__(self, given: Any, format: str | None, refresh_ms: Milliseconds | None) -> None:
        self.refresh_ms = refresh_ms
        self._given = given.combine_chunks() if isinstance(given, pa.Table) else given
        self._format = format
        self._digest: str | None = None
        if isinstance(given, str | os.PathLike):
            self._format = format or _format_of(os.fspath(given))
        elif not (isinstance(given, pa.Table | _DataFrame) or callable(given)):
            raise PlanError(
                f"enrich: {type(given).__name__} is not a table",
                hint="give a pyarrow Table, a path, a Spark DataFrame, or a function that returns a pyarrow Table",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return GivenTable._elsewhere, (self.describe(), self.refresh_ms)

    @staticmethod
    def _elsewhere(text: str, refresh_ms: Milliseconds | None) -> Any:
        table = object.__new__(GivenTable)
        table.refresh_ms, table._given, table._format, table._digest = refresh_ms, text, None, None
        return table

    def load(self) -> pa.Table:
        given = self._given
        if isinstance(given, pa.Table):
            return given
        if isinstance(given, str | os.PathLike):
            return pa.dataset.dataset(os.fspath(given), format=self._format).to_table()
        if isinstance(given, _DataFrame):
            return given.toArrow()
        made = given()
        if not isinstance(made, pa.Table):
            raise SourceError(
                f"{function_location(given)} returned {type(made).__name__}, not a table", hint="return a pyarrow Table"
            )
        return made

    def changed(self, digest: str) -> bool:
        """An Arrow table is known: the program may be another one than the one that began the job."""
        if not isinstance(self._given, pa.Table):
            return False
        if self._digest is None:
            self._digest = hashlib.sha256(encode_table(self._given)).hexdigest()[:16]
        return self._digest != digest

    def schema(self) -> Schema | None:
        """What is known when the program is built."""
        given = self._given
        if isinstance(given, pa.Table):
            return Schema.of_arrow(given.schema)
        try:
            if isinstance(given, str | os.PathLike):
                return Schema.of_arrow(pa.dataset.dataset(os.fspath(given), format=self._format).schema)
            columns = getattr(given, "columns", None) if isinstance(given, _DataFrame) else None
        except Exception:  # it may be there later
            return None
        return None if columns is None else Schema.of((str(name), None) for name in columns)

    def describe(self) -> str:
        given = self._given
        if isinstance(given, pa.Table):
            return f"an Arrow table of {given.num_rows} rows"
        if isinstance(given, str | os.PathLike):
            return f"{os.fspath(given)}" + (f" ({self._format})" if self._format else "")
        return "a Spark DataFrame" if isinstance(given, _DataFrame) else f"function {function_location(given)}"


def _format_of(path: str) -> str:
    ending = path.rstrip("/").rpartition(".")[2].lower()
    known = {**dict.fromkeys(FORMATS), "ipc": "arrow", "jsonl": "json", "ndjson": "json"}
    return (known[ending] or ending) if ending in known else "parquet"

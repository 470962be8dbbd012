"""CSV, a line without a header for each payload; the columns and their types are those of a schema."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from penstock.connectors.formats.columns import with_defaults
from penstock.errors import ConfigError
from penstock.plan.row_schemas import row_schema
from penstock.plan.schema import Schema
from penstock.plan.shapes import shape_of
from penstock.records import Batch, Columns, RowType, as_dict


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Lines of CSV. `schema`: a class or a pyarrow schema with the columns, in the order of the line; an empty cell is null."""

    schema: Any
    _: KW_ONLY
    delimiter: str = ","

    def __post_init__(self) -> None:
        if self.schema is None:
            raise ConfigError("CSV messages have no names for their columns", hint="give a schema, in the order of the columns")
        if len(self.delimiter) != 1:
            raise ConfigError(f"delimiter={self.delimiter!r} is not valid", hint="give one character")
        shape = shape_of(self.schema, None)
        if not shape.columnar or any(field.arrow is None for field in shape.fields or ()):
            raise ConfigError("CSV messages have plain columns only", hint="use numbers, text, booleans, dates and times")

    @property
    def row(self) -> RowType:
        return RowType(self.schema if isinstance(self.schema, type) else None)

    def decoder(self) -> CsvDecoder:
        return CsvDecoder(self)

    def encoder(self) -> CsvEncoder:
        return CsvEncoder(self)

    def known_columns(self) -> Schema | None:
        return Schema.of_arrow(self.schema) if isinstance(self.schema, pa.Schema) else row_schema(self.schema)

    def describe(self) -> str:
        return f"csv {getattr(self.schema, '__name__', 'schema')}"


class CsvDecoder:
    def __init__(self, format: CsvFormat) -> None:
        self._row = format.row
        self._fields = shape_of(format.schema, None).fields or ()
        names = [field.name for field in self._fields]
        types = {field.name: field.arrow for field in self._fields}
        text = [field.name for field in self._fields if field.arrow == pa.string() and not field.optional]
        self._read = pacsv.ReadOptions(column_names=names, use_threads=False)
        self._parse = pacsv.ParseOptions(delimiter=format.delimiter, newlines_in_values=False, ignore_empty_lines=False)
        self._convert = pacsv.ConvertOptions(
            column_types=types, strings_can_be_null=len(text) < len(names), quoted_strings_can_be_null=False, null_values=[""]
        )
        self._text = text

    def decode(self, payloads: Sequence[bytes]) -> Batch:
        for payload in payloads:
            line = payload.removesuffix(b"\n").removesuffix(b"\r")
            if b"\n" in line or b"\r" in line:
                raise ValueError("a CSV message must be one line")
            if not line.strip():
                raise ValueError("a message is empty")
        block = b"\n".join(payload.rstrip(b"\r\n") for payload in payloads) + b"\n"
        self._read.block_size = len(block) + 1
        table = pacsv.read_csv(
            pa.BufferReader(block), read_options=self._read, parse_options=self._parse, convert_options=self._convert
        )
        if table.num_rows != len(payloads):
            raise ValueError("there must be one row in each message")
        columns = []
        for field, column in zip(self._fields, table.columns, strict=True):
            column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
            if field.name in self._text:
                column = column.fill_null("")
            columns.append(with_defaults(column, field))
        return Columns(pa.RecordBatch.from_arrays(columns, names=table.column_names), self._row)


class CsvEncoder:
    def __init__(self, format: CsvFormat) -> None:
        self._names = [field.name for field in shape_of(format.schema, None).fields or ()]
        self._delimiter = format.delimiter

    def encode(self, batch: Batch) -> list[bytes]:
        made = []
        for value in batch.values():
            row = as_dict(value, self._names)
            line = io.StringIO()
            cells = ["" if row[name] is None else row[name] for name in self._names]
            csv.writer(line, delimiter=self._delimiter, lineterminator="").writerow(cells)
            made.append(line.getvalue().encode("utf-8"))
        return made

"""CSV as batches.

The types are those of the schema, or else those that the first megabyte of the file suggests, for the whole file: a value's type
must not depend on where the file was cut. An empty cell is null, in a text column the empty text; where null is not allowed it is
the field's default, or the record is bad.

pyarrow reads a quoted newline inside a block without a word, which would come out differently for another cut. So a record must
end on its line, unless `newlines_in_values` says that files are read whole.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from penstock.connectors.formats.columns import with_defaults
from penstock.errors import SourceError
from penstock.plan.shapes import Field, Shape
from penstock.records import Batch, Columns, Records, _dicts

_HEAD_BYTES = 1 << 20
_LAYOUTS_KEPT = 64


class Layout(msgspec.Struct, frozen=True):
    """The columns of a file, and the types to read the wanted ones with."""

    names: list[str]
    types: dict[str, pa.DataType]


class CsvRows:
    """Parses blocks of one CSV file after another."""

    def __init__(
        self,
        shape: Shape,
        all_names: list[str] | None,
        *,
        delimiter: str,
        header: bool,
        whole: bool,
        reopen: Callable[[str], BinaryIO],
    ) -> None:
        self._shape = shape
        self._all_names = all_names
        self._header = header
        self._reopen = reopen
        self._parse = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=whole)
        self._delimiter = delimiter
        self._layouts: dict[str, Layout] = {}

    def layout(self, path: str) -> Layout:
        known = self._layouts.get(path)
        if known is None:
            if len(self._layouts) >= _LAYOUTS_KEPT:
                self._layouts.clear()
            known = self._layouts[path] = self._find_layout(path)
        return known

    def skip_header(self, offset: int, block: bytes) -> tuple[int, bytes]:
        """The block at the beginning of a file without the line of names."""
        if not self._header:
            return offset, block
        end = block.find(b"\n") + 1 or len(block)
        return offset + end, block[end:]

    def parse(self, layout: Layout, block: bytes) -> Batch:
        if not block.strip():
            return Records([])
        table = pacsv.read_csv(
            pa.BufferReader(block),
            read_options=pacsv.ReadOptions(column_names=layout.names, use_threads=False, block_size=len(block) + 1),
            parse_options=self._parse,
            convert_options=self._convert(layout),
        )
        if block.count(b'"'):
            self._check_lines(block, table.num_rows)
        return self._finish(table)

    def stream(self, path: str, layout: Layout, file: BinaryIO) -> Iterator[Batch]:
        """A whole file, whose values may hold newlines."""
        options = pacsv.ReadOptions(column_names=layout.names, skip_rows_after_names=int(self._header), use_threads=False)
        try:
            convert = self._convert(layout)
            with pacsv.open_csv(file, read_options=options, parse_options=self._parse, convert_options=convert) as reader:
                for batch in reader:
                    yield self._finish(pa.Table.from_batches([batch]))
        except (pa.ArrowException, ValueError, msgspec.ValidationError) as error:
            if "Empty CSV" in str(error):
                return
            raise SourceError(f"{path} cannot be read: {error}", hint="correct the file or the schema") from error

    def _convert(self, layout: Layout) -> pacsv.ConvertOptions:
        return pacsv.ConvertOptions(
            column_types=layout.types,
            include_columns=list(layout.types),
            null_values=[""],
            strings_can_be_null=False,
        )

    def _check_lines(self, block: bytes, rows: int) -> None:
        lines = [line for line in block.split(b"\n") if line.strip()]
        odd = (line for line in lines if line.count(b'"') % 2)
        if rows != len(lines) or any(self._open(line) for line in odd):
            raise ValueError("a quoted value does not end on its line (newlines_in_values=True reads such files)")

    def _open(self, line: bytes) -> bool:
        try:
            list(csv.reader([line.decode("utf-8", "replace")], delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            return "end of data" in str(error)
        return False

    def _finish(self, table: pa.Table) -> Batch:
        shape = self._shape
        if not shape.typed:
            return Columns(_one(table), shape.row)
        if not shape.columnar:
            rows = _dicts(_one(table))
            by_name = {f.name: f for f in shape.fields or ()}
            cleaned = [{k: v for k, v in row.items() if v != "" or _is_text(by_name[k])} for row in rows]
            return Records([msgspec.convert(_blank_as_none(row, shape), shape.cls, strict=False) for row in cleaned])
        columns = [self._column(table, field) for field in shape.fields or ()]
        return Columns(pa.RecordBatch.from_arrays(columns, names=shape.names), shape.row)

    def _column(self, table: pa.Table, field: Field) -> pa.Array:
        if field.name not in table.schema.names:
            return with_defaults(pa.nulls(table.num_rows, field.arrow), field)
        column = table.column(field.name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        if pa.types.is_timestamp(field.arrow) and pa.types.is_string(column.type):
            column = _timestamps(column)
        return with_defaults(column, field)

    def _find_layout(self, path: str) -> Layout:
        names, first_types = self._inferred(path) if not self._shape.typed else (self._names(path), {})
        if not self._shape.typed:
            wanted = self._shape.names or names
            _check_present(path, [Field(name, None, required=True) for name in wanted], names)
            return Layout(names, {name: first_types[name] for name in wanted})
        fields = self._shape.fields or ()
        _check_present(path, fields, names)
        return Layout(names, {f.name: self._type(f) for f in fields if f.name in names})

    def _type(self, field: Field) -> pa.DataType:
        # Whether times have a zone is for the values to say.
        shape = self._shape
        if field.arrow is None or not shape.columnar or (shape.cls is not None and pa.types.is_timestamp(field.arrow)):
            return pa.string()
        return field.arrow

    def _names(self, path: str) -> list[str]:
        if not self._header:
            return list(self._all_names or [])
        with self._reopen(path) as file:
            head = file.read(_HEAD_BYTES)
        text = io.StringIO(head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace"), newline="")
        return next(csv.reader(text, delimiter=self._delimiter), [])

    def _inferred(self, path: str) -> tuple[list[str], dict[str, pa.DataType]]:
        names = self._names(path)
        options = pacsv.ReadOptions(
            column_names=names, skip_rows_after_names=int(self._header), use_threads=False, block_size=_HEAD_BYTES
        )
        parse = pacsv.ParseOptions(
            delimiter=self._delimiter, newlines_in_values=self._parse.newlines_in_values, invalid_row_handler=lambda row: "skip"
        )
        try:
            with self._reopen(path) as file:
                convert = pacsv.ConvertOptions(null_values=[""])
                with pacsv.open_csv(file, read_options=options, parse_options=parse, convert_options=convert) as reader:
                    found = {f.name: pa.string() if pa.types.is_null(f.type) else f.type for f in reader.schema}
        except pa.ArrowInvalid:  # nothing in it, or nothing that could tell
            found = dict.fromkeys(names, pa.string())
        return names, found


def _check_present(path: str, fields: tuple[Field, ...] | list[Field], names: list[str]) -> None:
    missing = [f.name for f in fields if f.name not in names and f.required]
    if missing:
        raise SourceError(
            f"{path} has no column {', '.join(missing)}",
            detail=f"it has {', '.join(names) or 'none'}",
            hint="correct the schema, give the field a default, or say header=False if the first line is data",
        )


def _one(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _is_text(field: Field) -> bool:
    return field.arrow is not None and pa.types.is_string(field.arrow)


def _blank_as_none(row: dict[str, str], shape: Shape) -> dict[str, str | None]:
    """Empty cells: None where that is allowed and there is no default."""
    filled: dict[str, str | None] = dict(row)
    for field in shape.fields or ():
        if field.name not in filled and field.required and field.optional:
            filled[field.name] = None
    return filled


def _timestamps(column: pa.Array) -> pa.Array:
    column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    try:
        return column.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us", tz="UTC"))

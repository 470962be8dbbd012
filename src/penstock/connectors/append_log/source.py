"""The source of what applications append: `AppendLog` in any process of this host, or `POST /jobs/{job}/sources/{source}`.

It is one source partition: records come in the order in which they were appended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, Literal

import msgspec
import pyarrow as pa

from penstock.connectors.append_log.enumerator import AppendLogEnumerator
from penstock.connectors.append_log.positions import Piece, piece_of
from penstock.connectors.append_log.segment import read_records
from penstock.connectors.formats.json_rows import JsonRows
from penstock.connectors.protocol import Reader, SourceContext, Split
from penstock.errors import ConfigError, SourceError
from penstock.plan.row_schemas import row_schema
from penstock.plan.schema import Schema
from penstock.plan.shapes import shape_of
from penstock.records import Batch, RowType
from penstock.storage import open_storage

_BATCH_RECORDS = 8192
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class AppendLogSource:
    """Records that applications append to a log in the job's storage, and can read the results of as soon as they are committed.

    - `schema`: a dataclass, NamedTuple or msgspec Struct to make of each record, or a pyarrow schema; without one records are
      dicts. What does not fit is refused when it is appended.
    - `retention`: how long records stay in the log at least (10 minutes if it is less), those that were not read longer. A job
      can go back as far, and a retried append is recognised as long.
    - `on_bad_record`: what to do with a record that was appended before the schema was changed, and does not fit any more:
      "fail", or "skip" to leave it out and count it.
    """

    _: KW_ONLY
    schema: Any = None
    retention: timedelta = timedelta(hours=1)
    on_bad_record: Literal["fail", "skip"] = "fail"

    def __post_init__(self) -> None:
        retention: Any = self.retention
        if not isinstance(retention, timedelta) or retention < timedelta(0):
            raise ConfigError(f"retention={self.retention!r} is not valid", hint="give a timedelta, 0 or more")
        if self.on_bad_record not in ("fail", "skip"):
            raise ConfigError(f"on_bad_record={self.on_bad_record!r} is not known", hint='use "fail" or "skip"')
        shape_of(self.schema, None)

    @property
    def bounded(self) -> bool:
        return False

    @property
    def reads_in_order(self) -> bool:
        """An epoch may stop anywhere in its splits."""
        return True

    @property
    def row(self) -> RowType:
        return RowType(self.schema if isinstance(self.schema, type) else None)

    def enumerator(self, context: SourceContext) -> AppendLogEnumerator:
        return AppendLogEnumerator(self, context)

    def reader(self) -> AppendLogReader:
        return AppendLogReader(self)

    def known_columns(self) -> Schema | None:
        if isinstance(self.schema, pa.Schema):
            return Schema.of_arrow(self.schema)
        return None if self.schema is None else row_schema(self.schema)

    def describe(self) -> str:
        return "append log"


class AppendLogReader(Reader):
    def __init__(self, source: AppendLogSource) -> None:
        self._source = source
        self._rows = JsonRows(shape_of(source.schema, None))
        self.skipped = 0

    def read(self, split: Split) -> Iterator[Batch]:
        piece = piece_of(split.what)
        lines: list[bytes] = []
        offset, size = piece.offset, 0
        for line in _lines(piece):
            lines.append(line)
            size += len(line)
            if len(lines) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
                yield from self._parsed(lines, offset)
                offset, size, lines = offset + len(lines), 0, []
        if lines:
            yield from self._parsed(lines, offset)

    def _parsed(self, lines: list[bytes], offset: int) -> Iterator[Batch]:
        try:
            yield self._rows.parse(b"\n".join(lines) + b"\n")
            return
        except (ValueError, pa.ArrowException, msgspec.MsgspecError) as error:
            if len(lines) == 1:
                self._bad(offset, error)
                return
        half = len(lines) // 2
        yield from self._parsed(lines[:half], offset)
        yield from self._parsed(lines[half:], offset + half)

    def _bad(self, offset: int, error: Exception) -> None:
        if self._source.on_bad_record == "fail":
            raise SourceError(
                f"record {offset} of the log cannot be read",
                detail=str(error)[:500],
                hint='it was appended under another schema: on_bad_record="skip" leaves it out',
                nature="deterministic",
            )
        self.skipped += 1


def _lines(piece: Piece) -> Iterator[bytes]:
    """The records of a piece, from one segment after another."""
    log, number, index, left = open_storage(piece.place), piece.segment, piece.index, piece.records
    while left > 0:
        _, lines = read_records(log, number)
        taken = lines[index : index + left]
        yield from taken
        left -= len(taken)
        number, index = number + 1, 0

"""Where a file may be cut.

Text formats are counted in bytes and cut after a line end, Parquet in rows and cut between row groups where that is near
enough, compressed files (and CSV with newlines in its values) are one piece. A cut always takes something.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.files.reading.locations import Location, checked_size, vanished
from penstock.errors import NotFoundError, SourceError

_SAMPLE_BYTES = 64 << 10
_FOOTERS_KEPT = 256
_COMPRESSED_TO = 5
"""A compressed file is taken to hold this many times its bytes, when records are estimated."""


class CutPoint(msgspec.Struct, frozen=True):
    """A range of a file ends at `stop`; `done`: so does the file."""

    stop: int
    records: int
    bytes: int
    done: bool


class Cutter(Protocol):
    def cut(self, path: str, size: int, start: int, records: int, bytes: int) -> CutPoint: ...


class LineLength:
    """The average length of a line, from what has been looked at so far."""

    def __init__(self) -> None:
        self._bytes = 0
        self._lines = 0

    def learn(self, sample: bytes) -> None:
        lines = sample.count(b"\n")
        if lines:
            self._bytes += sample.rindex(b"\n") + 1
            self._lines += lines

    @property
    def known(self) -> bool:
        return self._lines > 0

    @property
    def average(self) -> float:
        return self._bytes / self._lines if self._lines else 100.0


class LineCutter:
    """Cuts after the first line end at or beyond the limit."""

    def __init__(self, location: Location, lines: LineLength) -> None:
        self._location = location
        self._lines = lines

    def cut(self, path: str, size: int, start: int, records: int, bytes: int) -> CutPoint:
        if not self._lines.known:
            self._sample(path, start)
        target = start + max(1, min(bytes, round(records * self._lines.average)))
        stop = size if target >= size else self._line_end(path, target - 1, size)
        return CutPoint(stop, max(1, round((stop - start) / self._lines.average)), stop - start, stop >= size)

    def _sample(self, path: str, start: int) -> None:
        try:
            with self._location.open(path) as file:
                file.seek(start)
                self._lines.learn(file.read(_SAMPLE_BYTES))
        except (FileNotFoundError, NotFoundError) as error:
            raise vanished(path) from error

    def _line_end(self, path: str, at: int, size: int) -> int:
        checked_size(self._location, path, size)
        with self._location.open(path) as file:
            file.seek(at)
            while at < size:
                chunk = file.read(min(_SAMPLE_BYTES, size - at))
                if not chunk:
                    break
                end = chunk.find(b"\n")
                if end >= 0:
                    self._lines.learn(chunk[end + 1 :])
                    return at + end + 1
                at += len(chunk)
        return size


class WholeCutter:
    """One piece: from 0 to the size."""

    def __init__(self, lines: LineLength) -> None:
        self._lines = lines

    def cut(self, path: str, size: int, start: int, records: int, bytes: int) -> CutPoint:
        return CutPoint(size, max(1, round(size * _COMPRESSED_TO / self._lines.average)), size, True)


class RowCutter:
    """Cuts Parquet files by rows."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._footers: OrderedDict[tuple[str, int], list[tuple[int, int]]] = OrderedDict()

    def cut(self, path: str, size: int, start: int, records: int, bytes: int) -> CutPoint:
        groups = self._groups(path, size)
        total = sum(rows for rows, _ in groups)
        stop, taken, weight = start, 0, 0
        begin = 0
        for rows, data in groups:
            end = begin + rows
            if rows and end > start:
                inside = end - max(begin, start)
                cost = data * inside // rows
                if taken + inside <= records and weight + cost <= bytes:
                    stop, taken, weight = end, taken + inside, weight + cost
                else:
                    if not taken:
                        fits = min(inside, max(1, min(records, rows * bytes // max(1, data))))
                        stop, taken, weight = max(begin, start) + fits, fits, data * fits // rows
                    break
            begin = end
        return CutPoint(stop, taken, weight, stop >= total)

    def _groups(self, path: str, size: int) -> list[tuple[int, int]]:
        """Rows and bytes of each row group."""
        known = self._footers.get((path, size))
        if known is not None:
            self._footers.move_to_end((path, size))
            return known
        checked_size(self._location, path, size, exactly=True)
        try:
            with self._location.open(path) as file:
                footer = pq.read_metadata(file)
        except pa.ArrowException as error:
            raise SourceError(f"{path} is not a Parquet file", detail=str(error)) from error
        groups = [(footer.row_group(i).num_rows, footer.row_group(i).total_byte_size) for i in range(footer.num_row_groups)]
        self._footers[(path, size)] = groups
        if len(self._footers) > _FOOTERS_KEPT:
            self._footers.popitem(last=False)
        return groups

"""Lines of text formats: in blocks of whole lines, and one by one where one of them is bad.

A block is parsed at once. If that fails it is halved until the lines at fault are alone, so that good blocks cost nothing extra,
and the verdict on a line does not depend on where the file was cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol, TypeVar

import msgspec
import pyarrow as pa

from penstock.errors import SourceError

log = logging.getLogger("penstock.files")

BLOCK_BYTES = 4 << 20
_SHOWN = 200
_BOM = b"\xef\xbb\xbf"

UNREADABLE = (ValueError, OverflowError, msgspec.MsgspecError, pa.ArrowException)
"""What a parser raises about its input."""

T = TypeVar("T")


class Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


class BadRecords:
    """What is done about records that cannot be read: the first one ends it, or all are counted and left out."""

    def __init__(self, skip: bool, reopen: Callable[[str], BinaryIO]) -> None:
        self.skip = skip
        self._reopen = reopen
        self._first = ""
        self._here = 0
        self.skipped = 0

    def found(self, path: str, offset: int, text: bytes, reason: str) -> None:
        if not self.skip:
            raise self.error(path, f"line {self._line(path, offset)}, byte {offset}", text, reason)
        self.count(f"byte {offset}: {reason}")

    def error(self, path: str, where: str, text: bytes, reason: str) -> SourceError:
        shown = text.decode("utf-8", "backslashreplace").rstrip("\r\n")
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        return SourceError(
            f"a record of {path} cannot be read: {reason}",
            detail=f"{where}" + (f"\n{shown}" if shown else ""),
            hint='correct the file or the schema, or leave such records out with on_bad_record="skip"',
        )

    def count(self, what: str, number: int = 1) -> None:
        self._first = self._first or what
        self._here += number
        self.skipped += number

    def finished(self, path: str) -> None:
        """A range has been read: say what was left out of it."""
        if self._here:
            log.warning("%s: skipped %d bad records, the first at %s", path, self._here, self._first)
        self._here, self._first = 0, ""

    def _line(self, path: str, offset: int) -> int:
        line = 1
        with self._reopen(path) as file:
            while offset > 0 and (chunk := file.read(min(offset, BLOCK_BYTES))):
                line += chunk.count(b"\n")
                offset -= len(chunk)
        return line


def blocks(file: Stream, start: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
    """Whole lines from `start`, where the file stands, to `stop` or the end, with the offset of each block."""
    at = start
    left = b""
    while True:
        wanted = BLOCK_BYTES if stop is None else min(BLOCK_BYTES, stop - at - len(left))
        chunk = file.read(wanted) if wanted > 0 else b""
        if not chunk:
            break
        end = chunk.rfind(b"\n") + 1
        if not end:
            left += chunk
            continue
        block = left + chunk[:end]
        yield at, block
        at += len(block)
        left = chunk[end:]
    if left:
        yield at, left


def without_mark(offset: int, block: bytes) -> tuple[int, bytes]:
    """A byte order mark at the very beginning is not part of the data."""
    if offset == 0 and block.startswith(_BOM):
        return len(_BOM), block[len(_BOM) :]
    return offset, block


def parsed(path: str, offset: int, block: bytes, parse: Callable[[bytes], T], bad: BadRecords) -> Iterator[T]:
    """What `parse` makes of a block, in one piece if it can."""
    try:
        whole = parse(block)
    except UNREADABLE as error:
        lines = block.split(b"\n")
        if len(lines) > 2 or (len(lines) == 2 and lines[1]):
            middle = sum(len(line) + 1 for line in lines[: len(lines) // 2])
            del lines
            yield from parsed(path, offset, block[:middle], parse, bad)
            yield from parsed(path, offset + middle, block[middle:], parse, bad)
        else:
            bad.found(path, offset, block, str(error).strip() or type(error).__name__)
        return
    yield whole

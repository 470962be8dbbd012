"""Says which records of a log an epoch reads. It looks for one file, the next segment, each time it is asked."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.append_log.fields import fields_of
from penstock.connectors.append_log.positions import LogPosition, Piece, piece_of
from penstock.connectors.append_log.segment import (
    FIELDS,
    LOG,
    Header,
    LogIdentity,
    folder_of,
    numbers_in,
    read_header,
    segment_name,
)
from penstock.connectors.protocol import Enumerator, Limits, Planned, Position, SourceContext, Split
from penstock.errors import AlreadyExistsError, NotFoundError, SourceError, StorageError
from penstock.ids import Epoch
from penstock.plan.shapes import shape_of
from penstock.storage import LocalStorage
from penstock.storage.documents import LIST_BYTES, NOTE_BYTES, decode_json, read_small
from penstock.timing.durations import to_ms

if TYPE_CHECKING:
    from penstock.connectors.append_log.source import AppendLogSource

log = logging.getLogger("penstock")

PARTITION = "0"
LOOK_EVERY_MS = 200
"""At a storage that is not a folder: each look is a request."""
_AHEAD = 4
"""How many times an epoch's share is looked at: what is not read is the backlog."""
_PIECES = 8
"""In an epoch that reads in order of event time."""
_TIDY_EVERY_MS = 10_000
KEPT_MS = 600_000
"""Segments stay so long in any case: who appends looks what there is more often."""
_REMOVED_AT_ONCE = 2_000


class AppendLogEnumerator(Enumerator):
    def __init__(self, source: AppendLogSource, context: SourceContext) -> None:
        self._source = source
        self._context = context
        self._log = context.storage.child(folder_of(context.step))
        self._identity = ""
        self._seen: dict[int, tuple[Header, int]] = {}
        """Segments from the position on."""
        self._oldest = 1
        self._unread: int | None = None
        """The first segment that has records that were planned and not read."""
        self._now_ms = 0
        self._tidied_ms = 0

    def plan(self, position: Position, limits: Limits, now_ms: int) -> Planned:
        self._now_ms = now_ms
        at = self._resume(position)
        for number in [number for number in self._seen if number < at.segment]:
            del self._seen[number]
        ahead = list(self._ahead(at, limits))
        there = sum(header.records for header, _ in ahead) - at.index
        taken = 0 if PARTITION in limits.full else min(there, max(1, limits.records), _within(at, ahead, limits.bytes))
        left = there - taken
        return Planned(
            splits=self._splits(at, ahead, taken, limits) if taken else (),
            position=msgspec.to_builtins(_moved(at, ahead, taken)),
            partitions=[PARTITION],
            backlog=left,
            more=[PARTITION] if left else [],
            wake_ms=None if isinstance(self._log, LocalStorage) else now_ms + LOOK_EVERY_MS,
        )

    def unread(self, splits: Sequence[Split]) -> None:
        """What was planned and not read has to stay."""
        self._unread = min((piece_of(split.what).segment for split in splits), default=None)

    def committed(self, position: Position, epoch: Epoch) -> None:
        """Remove what is old enough and was read. The newest segment that was read stays: the log goes on from it."""
        if position is None or self._now_ms - self._tidied_ms < _TIDY_EVERY_MS:
            return
        self._tidied_ms = self._now_ms
        at = msgspec.convert(position, LogPosition)
        if at.log != self._identity:
            return
        with suppress(StorageError):  # next time
            self._tidy(min(at.segment, at.segment if self._unread is None else self._unread) - 1)

    def reached(self, position: Position, goal: Position) -> bool | None:
        if position is None or goal is None:
            return goal is None
        here, there = msgspec.convert(position, LogPosition), msgspec.convert(goal, LogPosition)
        return here.offset >= there.offset if here.log == there.log else None

    # --- where to go on

    def _resume(self, position: Position) -> LogPosition:
        at = None if position is None else msgspec.convert(position, LogPosition)
        if self._identity:
            return at if at is not None and at.log == self._identity else self._beginning()
        self._identity = self._open()
        numbers = numbers_in(self._log)
        self._oldest = numbers.start
        if at is None or at.log != self._identity:
            return self._beginning()
        if not numbers.start <= at.segment <= numbers.stop:
            raise SourceError(
                f"the log of {self._context.step!r} does not have what comes next: segment {at.segment}",
                detail=f"it has {len(numbers)} from {numbers.start} on\n{self._log.uri}",
                hint="records are removed when they were read and retention= is over: start from a later epoch",
                nature="configuration",
            )
        return at

    def _beginning(self) -> LogPosition:
        """Of a job that starts, or that was started from a snapshot with a log of its own."""
        found = self._header(self._oldest)
        first = 0 if found is None else found[0].first
        return LogPosition(self._identity, self._oldest, 0, first, 0 if found is None else found[0].previous)

    def _open(self) -> str:
        """The log, made if it is not there; and what its records look like now."""
        fields = msgspec.json.encode(fields_of(shape_of(self._source.schema, None)))
        try:
            self._log.create(LOG, msgspec.json.encode(LogIdentity(uuid.uuid4().hex)))
        except AlreadyExistsError:
            pass
        identity = decode_json(read_small(self._log, LOG, NOTE_BYTES), LogIdentity, LOG).id
        try:
            same = read_small(self._log, FIELDS, LIST_BYTES) == fields
        except NotFoundError:
            same = False
        if not same:
            self._log.replace(FIELDS, fields)
        return identity

    # --- what there is

    def _ahead(self, at: LogPosition, limits: Limits) -> Iterator[tuple[Header, int]]:
        """The segments from the position on, as far as an epoch could read, and some more."""
        number, records, size, holding, previous = at.segment, -at.index, 0, 0, None if at.index else at.previous
        while holding < 2 or (records <= _AHEAD * limits.records and size <= _AHEAD * limits.bytes):
            found = self._header(number)
            if found is None:
                return
            header, crc = found
            if previous is not None and header.previous != previous:
                raise SourceError(
                    f"segment {number} of the log of {self._context.step!r} does not follow the one that was read before it",
                    detail=self._log.uri,
                    hint="files of the log were lost or exchanged: restore them from a backup",
                    nature="configuration",
                )
            yield found
            number, previous = number + 1, crc
            records, size, holding = records + header.records, size + header.bytes, holding + (header.records > 0)

    def _header(self, number: int) -> tuple[Header, int] | None:
        found = self._seen.get(number)
        if found is None and (found := read_header(self._log, number)) is not None:
            self._seen[number] = found
        return found

    def _splits(self, at: LogPosition, ahead: list[tuple[Header, int]], taken: int, limits: Limits) -> list[Split]:
        """One, in order; several where an epoch may stop in between, or where order means nothing."""
        free = self._context.ordering == "none"
        pieces = {"none": max(1, limits.readers), "partition": 1, "time": _PIECES}[self._context.ordering]
        size = -(-taken // pieces)
        splits = []
        for number, start in enumerate(range(0, taken, size)):
            many = min(size, taken - start)
            here = _moved(at, ahead, start)
            piece = Piece(self._log.uri, self._identity, here.segment, here.index, here.offset, many)
            partition = str(number) if free else PARTITION
            splits.append(Split(partition=partition, what=msgspec.to_builtins(piece), records=many))
        return splits

    def _tidy(self, below: int) -> None:
        limit = self._now_ms - max(KEPT_MS, to_ms(self._source.retention))
        old = []
        for number in range(self._oldest, min(below, self._oldest + _REMOVED_AT_ONCE)):
            found = read_header(self._log, number)
            if found is not None and found[0].created_ms > limit:
                break
            old.append(number)
        for number in old:
            self._log.delete([segment_name(number)])
            self._oldest = number + 1


def _moved(at: LogPosition, ahead: list[tuple[Header, int]], records: int) -> LogPosition:
    """The position so many records further. Pure."""
    segment, index, previous, left = at.segment, at.index, at.previous, records
    for header, crc in ahead:
        here = header.records - index
        if left < here:
            index += left
            segment, previous = header.number, 0 if index else header.previous
            break
        left -= here
        segment, index, previous = header.number + 1, 0, crc
    return LogPosition(at.log, segment, index, at.offset + records, previous)


def _within(at: LogPosition, ahead: list[tuple[Header, int]], limit: int) -> int:
    """How many records are in whole segments of at most so many bytes; those of one segment at least. Pure."""
    records, size = -at.index, 0
    for header, _ in ahead:
        size += header.bytes
        if size > limit and records > 0:
            break
        records += header.records
    return max(1, records)

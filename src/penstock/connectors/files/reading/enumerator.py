"""What of the files is read next.

A source partition is a *lane*: the k-th file goes to lane k % lanes, a lane reads its files in order, and one task reads a lane.
A job that needs no order (`ordering="none"`) has one lane, and what is planned of it is cut into pieces of
equal weight, each a partition for itself, so that all readers work on one big file.
For a job that reads in order of event time (`ordering="time"`) files are cut into pieces of one size, which are dealt out to the
lanes in turn, so that lanes move through time together though files come one after another. Where a piece ends depends on its
file alone.

The position stays small: the last file assigned, how many there were, and for each lane the files assigned but not finished.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.files.file_format import format_of
from penstock.connectors.files.reading.cutting import Cutter, LineCutter, LineLength, RowCutter, WholeCutter
from penstock.connectors.files.reading.listing import GRACE_NS, InputFile, Key, KeyKind, Listing
from penstock.connectors.files.reading.locations import location_of
from penstock.connectors.protocol import Enumerator, Limits, Planned, Position, SourceContext, Split
from penstock.errors import SourceError

if TYPE_CHECKING:
    from penstock.connectors.files.source import FileSource

log = logging.getLogger("penstock.files")

_QUEUE_MOST = 256
_PIECE_LEAST_BYTES = 16 << 10

DEALT_BYTES = 256 << 10
"""What a piece of a file holds, where pieces are dealt out to lanes."""
DEALT_ROWS = 65_536
"""The same for Parquet files, in rows."""


class Queued(msgspec.Struct, array_like=True):
    """A file assigned to a lane, and how far it has been read."""

    path: str
    size: int
    at: int = 0


class FilesPosition(msgspec.Struct):
    kind: KeyKind
    queues: list[list[Queued]]
    ordinal: int = 0
    last: Key | None = None
    recent: dict[str, int] = {}
    version: int = 1
    dealing: Queued | None = None
    """The file that is being dealt out in pieces, and how far."""
    dealt: int | None = None
    """How many pieces have been dealt out; None: whole files are assigned to lanes."""

    @property
    def lanes(self) -> int:
        return len(self.queues)


class Range(msgspec.Struct, array_like=True, frozen=True):
    """A piece of a file, for the reader. In bytes, for Parquet in rows."""

    path: str
    start: int
    stop: int
    size: int
    records: int = 0
    bytes: int = 0


class FileEnumerator(Enumerator):
    def __init__(self, source: FileSource, context: SourceContext) -> None:
        self._source = source
        self._unordered = context.ordering == "none"
        self._in_order = context.ordering == "time"
        self._lanes = source.lanes or (1 if self._unordered else max(1, context.parallelism))
        self._location = location_of(source.path)
        self._listing = Listing(self._location, source.path, source.watch_ms)
        self._lines = LineLength()
        self._by_line: Cutter = LineCutter(self._location, self._lines)
        self._by_row: Cutter = RowCutter(self._location)
        self._whole: Cutter = WholeCutter(self._lines)

    def plan(self, position: Position, limits: Limits, now_ms: int) -> Planned:
        fresh = position is None
        at = FilesPosition("path", [[] for _ in range(self._lanes)]) if fresh else msgspec.convert(position, FilesPosition)
        if fresh and self._in_order and self._source.lanes is None:
            at.dealt = 0
        started = at.ordinal > 0
        self._listing.look(now_ms, at.kind if started else None, at.last)
        if started and at.kind != self._listing.kind:
            raise SourceError(
                f"{self._source.path} was read in another order before",
                detail=f"the position is by {at.kind}, the source is now by {self._listing.kind}",
                hint="set watch= back to what it was, or start the step under another name",
                nature="configuration",
            )
        at.kind = self._listing.kind
        self._without_taken_back(at)
        at.recent = self._listing.times(at.recent)
        waiting = _Waiting(self._listing.after(at.last, dict(at.recent)))
        if at.dealt is not None:
            return self._deal_out(at, waiting, limits)
        active = self._active(at, waiting)
        ranges = self._take(at, waiting, limits)
        if at.last is not None:
            horizon = at.last[0] - GRACE_NS
            at.recent = {path: mtime for path, mtime in at.recent.items() if mtime >= horizon}
        splits = self._pieces(ranges, limits.readers) if self._unordered else self._by_lane(ranges)
        left = any(at.queues) or waiting.peek() is not None
        return Planned(
            splits=splits,
            position=msgspec.to_builtins(at),
            partitions=[s.partition for s in splits] if self._unordered else active,
            exhausted=self._source.bounded and not left,
            wake_ms=None if left or splits else self._listing.next_look_ms,
            backlog=self._backlog(at) if left else 0,
            more=self._unread(at, waiting) if self._in_order else None,
        )

    def _unread(self, at: FilesPosition, waiting: _Waiting) -> list[str]:
        """The lanes that have more to read."""
        coming = {(at.ordinal + i) % at.lanes for i in range(waiting.at_least(at.lanes))}
        return [str(k) for k in range(at.lanes) if at.queues[k] or k in coming]

    # --- pieces, dealt out in turn -----------------------------------------------------------------------------------------

    def _deal_out(self, at: FilesPosition, waiting: _Waiting, limits: Limits) -> Planned:
        """Deal out pieces until every lane has its share, or there are none; every lane that has not enough gets one at least.
        The turn goes round: one that has enough gets some too while another is behind."""
        assert at.dealt is not None
        share = max(1, limits.records // at.lanes)
        wanting = {lane: share for lane in range(at.lanes) if str(lane) not in limits.full}
        without = set(wanting)
        weight, splits = limits.bytes, []
        while (without or (wanting and weight > 0)) and self._open_next(at, waiting):
            lane, piece = at.dealt % at.lanes, self._deal(at)
            splits.append(self._split(str(lane), [piece]))
            without.discard(lane)
            if lane in wanting:
                weight -= piece.bytes
                wanting[lane] -= piece.records
                if wanting[lane] <= 0:
                    del wanting[lane]
        if at.last is not None:
            horizon = at.last[0] - GRACE_NS
            at.recent = {path: mtime for path, mtime in at.recent.items() if mtime >= horizon}
        left = self._open_next(at, waiting)
        more = self._coming(at, waiting) if left else []
        return Planned(
            splits=splits,
            position=msgspec.to_builtins(at),
            partitions=more if self._source.bounded else [str(k) for k in range(at.lanes)],
            exhausted=self._source.bounded and not left,
            wake_ms=None if left or splits else self._listing.next_look_ms,
            backlog=self._backlog(at) if left else 0,
            more=more,
        )

    def _open_next(self, at: FilesPosition, waiting: _Waiting) -> bool:
        """Is there a piece to deal out? Empty files hold none."""
        while at.dealing is None:
            entry = waiting.peek()
            if entry is None:
                return False
            waiting.take()
            queue: list[Queued] = []
            self._assign(at, entry, queue)
            if not self._is_empty(queue[0]):
                at.dealing = queue[0]
        return True

    def _is_empty(self, file: Queued) -> bool:
        cutter = self._cutter(file.path)
        return file.size == 0 or (cutter is self._by_row and self._by_row.cut(file.path, file.size, 0, 1, 1).stop == 0)

    def _deal(self, at: FilesPosition) -> Range:
        file = at.dealing
        assert file is not None
        assert at.dealt is not None
        cutter = self._cutter(file.path)
        rows = DEALT_ROWS if cutter is self._by_row else 1 << 62
        weight = 1 << 62 if cutter is self._by_row else DEALT_BYTES - file.at % DEALT_BYTES
        cut = cutter.cut(file.path, file.size, file.at, rows, weight)
        at.dealt += 1
        at.dealing = None if cut.done else Queued(file.path, file.size, cut.stop)
        return Range(file.path, file.at, cut.stop, file.size, cut.records, cut.bytes)

    def _coming(self, at: FilesPosition, waiting: _Waiting) -> list[str]:
        """The lanes that get a piece of what is left."""
        assert at.dealing is not None
        assert at.dealt is not None
        pieces = max(1, (at.dealing.size - at.dealing.at) // DEALT_BYTES) + waiting.at_least(at.lanes)
        return sorted({str((at.dealt + i) % at.lanes) for i in range(min(at.lanes, pieces))})

    # --- whole files -------------------------------------------------------------------------------------------------------

    def reached(self, position: Position, goal: Position) -> bool | None:
        if position == goal or goal is None:
            return True
        there = msgspec.convert(goal, FilesPosition)
        if self._listing.taken_back(there.last) is not None:
            return None
        if there.dealt is not None:
            here = None if position is None else msgspec.convert(position, FilesPosition).dealt
            return here is not None and here >= there.dealt
        return position is not None and covers(msgspec.convert(position, FilesPosition), there)

    def _without_taken_back(self, at: FilesPosition) -> None:
        """If what was read has been taken back: stop, or with `on_taken_back="continue"` read what replaces it as well."""
        taken = self._listing.taken_back(at.last)
        if taken is None:
            return
        if self._source.on_taken_back == "fail":
            raise SourceError(
                f"{self._source.path} has taken back what was published after epoch {taken.to}",
                detail=f"this source has read it up to epoch {taken.read}",
                hint="start this job from an epoch in which it had not read that yet; "
                'or set on_taken_back="continue" to read what replaces it as well',
            )
        log.warning(
            "%s has taken back what was published after epoch %d: it was read up to epoch %d, what replaces it is read as well",
            self._source.path,
            taken.to,
            taken.read,
        )
        at.last = taken.last
        at.queues = [[file for file in queue if file.path not in taken.paths] for queue in at.queues]
        if at.dealing is not None and at.dealing.path in taken.paths:
            at.dealing = None

    def _active(self, at: FilesPosition, waiting: _Waiting) -> list[str]:
        if not self._source.bounded:
            return [str(k) for k in range(at.lanes)]
        coming = {(at.ordinal + i) % at.lanes for i in range(waiting.at_least(at.lanes))}
        return [str(k) for k in range(at.lanes) if at.queues[k] or k in coming]

    def _take(self, at: FilesPosition, waiting: _Waiting, limits: Limits) -> list[list[Range]]:
        """Ranges for each lane, within the limits; moves the position on."""
        records, weight = limits.records, limits.bytes
        taken: list[list[Range]] = []
        for lane in range(at.lanes):
            lanes_left = at.lanes - lane
            if str(lane) in limits.full:
                taken.append([])
                continue
            ranges = self._take_lane(at, lane, waiting, max(1, records // lanes_left), max(1, weight // lanes_left))
            records -= sum(r.records for r in ranges)
            weight -= sum(r.bytes for r in ranges)
            taken.append(ranges)
        return taken

    def _take_lane(self, at: FilesPosition, lane: int, waiting: _Waiting, records: int, weight: int) -> list[Range]:
        ranges: list[Range] = []
        while records > 0 and weight > 0 and self._fill(at, lane, waiting):
            file = at.queues[lane][0]
            cut = self._cutter(file.path).cut(file.path, file.size, file.at, records, weight)
            if cut.stop > file.at:
                ranges.append(Range(file.path, file.at, cut.stop, file.size, cut.records, cut.bytes))
                records -= cut.records
                weight -= cut.bytes
            if cut.done:
                at.queues[lane].pop(0)
            else:
                file.at = cut.stop
        return ranges

    def _fill(self, at: FilesPosition, lane: int, waiting: _Waiting) -> bool:
        """Assign files until the lane has one; False when there is none for it now."""
        while not at.queues[lane]:
            entry = waiting.peek()
            target = at.queues[at.ordinal % at.lanes]
            if entry is None or len(target) >= _QUEUE_MOST:
                return False
            waiting.take()
            self._assign(at, entry, target)
        return True

    def _assign(self, at: FilesPosition, entry: InputFile, queue: list[Queued]) -> None:
        format_of(entry.path, self._source.format)
        queue.append(Queued(entry.path, entry.size))
        at.ordinal += 1
        at.last = entry.key if at.last is None else max(at.last, entry.key)
        if at.kind == "mtime":
            at.recent[entry.path] = entry.key[0]

    def _cutter(self, path: str) -> Cutter:
        file_format = format_of(path, self._source.format)
        if file_format.name == "parquet":
            return self._by_row
        whole = file_format.compression is not None or (file_format.name == "csv" and self._source.newlines_in_values)
        return self._whole if whole else self._by_line

    def _by_lane(self, taken: list[list[Range]]) -> list[Split]:
        return [self._split(str(lane), ranges) for lane, ranges in enumerate(taken) if ranges]

    def _split(self, partition: str, ranges: list[Range]) -> Split:
        """Only Parquet files say how many records they hold."""
        return Split(
            partition=partition,
            what=[[r.path, r.start, r.stop, r.size] for r in ranges],
            records=sum(r.records for r in ranges),
            bytes=sum(r.bytes for r in ranges),
            estimated=any(self._cutter(r.path) is not self._by_row for r in ranges),
        )

    def _pieces(self, taken: list[list[Range]], readers: int) -> list[Split]:
        """All ranges as pieces of about equal weight, at least one for each reader unless they would be tiny."""
        total = sum(r.bytes for ranges in taken for r in ranges)
        target = max(_PIECE_LEAST_BYTES, -(-total // max(1, readers)))
        splits: list[Split] = []
        for lane, ranges in enumerate(taken):
            piece: list[Range] = []
            room = target
            for whole in ranges:
                for part in self._parts(whole, target, room):
                    piece.append(part)
                    room -= part.bytes
                    if room <= 0:
                        splits.append(self._split(f"{lane}.{len(splits)}", piece))
                        piece, room = [], target
            if piece:
                splits.append(self._split(f"{lane}.{len(splits)}", piece))
        return splits

    def _parts(self, whole: Range, target: int, room: int) -> Iterator[Range]:
        """A range cut so that the first part fills the room and the others the target."""
        cutter = self._cutter(whole.path)
        start = whole.start
        left = whole.bytes
        while start < whole.stop:
            # A part that would leave less than a tenth of a piece behind is not worth another piece.
            wanted = left if left <= room + target // 10 else room
            cut = cutter.cut(whole.path, whole.size, start, 1 << 62, wanted)
            stop = min(cut.stop, whole.stop) if wanted < left else whole.stop
            share = (stop - start) / (whole.stop - whole.start)
            part = Range(whole.path, start, stop, whole.size, round(whole.records * share), max(1, round(whole.bytes * share)))
            yield part
            start = stop
            left -= part.bytes
            room = target if part.bytes >= room else room - part.bytes

    def _backlog(self, at: FilesPosition) -> int:
        files = [file for queue in at.queues for file in queue] + ([] if at.dealing is None else [at.dealing])
        queued = sum(f.size - (f.at if f.at < f.size else 0) for f in files)
        return round((queued + self._listing.bytes_after(at.last)) / self._lines.average)


def covers(position: FilesPosition, goal: FilesPosition) -> bool:
    """Is everything read at `position` that was read at `goal`?

    At `goal` all files up to its last key are read, but for the rests that are queued. So at `position` the last key must not be
    before, and a file queued there must be queued at `goal` too, read no further; or come after all files of `goal`.
    """
    if goal.last is not None and (position.last is None or position.last < goal.last or position.kind != goal.kind):
        return False
    rests = {file.path: file.at for queue in goal.queues for file in queue}
    for ordinal, file in _queued(position):
        if file.path in rests:
            if file.at < rests[file.path]:
                return False
        elif position.kind == "mtime":
            read = position.recent.get(file.path)
            if goal.last is None or read is None or (read, file.path) <= goal.last:
                return False
        elif ordinal < goal.ordinal:
            return False
    return True


def _queued(at: FilesPosition) -> Iterator[tuple[int, Queued]]:
    """The queued files, with the number that each was assigned as: file n went to lane n % lanes."""
    for lane, queue in enumerate(at.queues):
        newest = at.ordinal - 1 - (at.ordinal - 1 - lane) % at.lanes
        for back, file in enumerate(reversed(queue)):
            yield newest - back * at.lanes, file


class _Waiting:
    """The files not yet assigned, with a look ahead."""

    def __init__(self, entries: Iterator[InputFile]) -> None:
        self._entries = entries
        self._ahead: list[InputFile] = []

    def at_least(self, n: int) -> int:
        """How many there are, up to n."""
        self._ahead.extend(islice(self._entries, max(0, n - len(self._ahead))))
        return min(n, len(self._ahead))

    def peek(self) -> InputFile | None:
        return self._ahead[0] if self.at_least(1) else None

    def take(self) -> InputFile:
        return self._ahead.pop(0)

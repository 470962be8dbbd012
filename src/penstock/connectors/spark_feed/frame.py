"""A batch DataFrame as a bounded input: computed once, written to the job's storage, read from there.

What was written is named by an index, created exclusively: an index that is there from an earlier run of the job is the truth. A
DataFrame has no order, and its partitions are dealt out to lanes, as files are.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.protocol import Enumerator, Limits, Planned, Position, SourceContext, Split
from penstock.connectors.spark_feed import frames
from penstock.connectors.spark_feed.batches import Piece, feed_split, first_lines, write
from penstock.errors import AlreadyExistsError, NotFoundError, PenstockError, SourceError
from penstock.storage.documents import MANIFEST_BYTES, decode_json, read_small

if TYPE_CHECKING:
    from penstock.connectors.spark_feed.source import DataFrameSource


class FramePosition(msgspec.Struct):
    """How many rows of each lane have been read."""

    folder: str
    rows: list[int]


class FrameEnumerator(Enumerator):
    def __init__(self, source: DataFrameSource, context: SourceContext) -> None:
        self._source = source
        self._context = context
        self._folder = f"{context.folder}/frame"
        self._unordered = context.ordering == "none"
        self._pieces: list[Piece] | None = None

    def plan(self, position: Position, limits: Limits, now_ms: int) -> Planned:
        pieces = self._written(started=position is not None)
        if position is None:
            lanes = 1 if self._unordered else max(1, min(len(pieces), self._context.parallelism))
            at = FramePosition(self._folder, [0] * lanes)
        else:
            at = msgspec.convert(position, FramePosition)
        dealt = [pieces[k :: len(at.rows)] for k in range(len(at.rows))]
        totals = [sum(piece.rows for piece in lane) for lane in dealt]
        active = [k for k, total in enumerate(totals) if at.rows[k] < total]
        budget = self._budget(pieces, limits)
        splits: list[Split] = []
        for left, k in zip(range(len(active), 0, -1), active, strict=True):
            stop = min(totals[k], at.rows[k] + max(1, budget // left))
            splits += self._splits(dealt[k], k, at.rows[k], stop, limits.readers)
            budget -= stop - at.rows[k]
            at.rows[k] = stop
        remaining = sum(totals) - sum(at.rows)
        return Planned(
            splits=splits,
            position=msgspec.to_builtins(at),
            partitions=[split.partition for split in splits] if self._unordered else [str(k) for k in active],
            exhausted=remaining == 0,
            backlog=remaining,
        )

    def reached(self, position: Position, goal: Position) -> bool | None:
        if position is None or goal is None:
            return goal is None
        here, there = msgspec.convert(position, FramePosition), msgspec.convert(goal, FramePosition)
        if len(here.rows) != len(there.rows):
            return None
        return all(a >= b for a, b in zip(here.rows, there.rows, strict=True))

    def _budget(self, pieces: list[Piece], limits: Limits) -> int:
        rows = sum(piece.rows for piece in pieces)
        weight = sum(piece.bytes for piece in pieces)
        return min(limits.records, limits.bytes * rows // weight if weight else limits.records)

    def _splits(self, lane: list[Piece], k: int, start: int, stop: int, readers: int) -> list[Split]:
        storage = self._context.storage
        if not self._unordered:
            return [feed_split(str(k), storage, _ranges(lane, start, stop))]
        cuts = sorted({start + (stop - start) * i // max(1, readers) for i in range(max(1, readers) + 1)})
        pairs = pairwise(cuts)
        return [feed_split(f"{k}.{i}", storage, _ranges(lane, a, b)) for i, (a, b) in enumerate(pairs)]

    def _written(self, started: bool) -> list[Piece]:
        if self._pieces is None:
            self._pieces = self._index()
        if self._pieces is None:
            self._pieces = self._lost() if started else self._write()
        return self._pieces

    def _index(self) -> list[Piece] | None:
        try:
            path = f"{self._folder}/index.json"
            return decode_json(read_small(self._context.storage, path, MANIFEST_BYTES), list[Piece], path)
        except NotFoundError:
            return None

    def _write(self) -> list[Piece]:
        storage = self._context.storage
        try:
            pieces = write(frames.recall(self._source.frame), storage, self._folder)
        except PenstockError:
            raise
        except Exception as error:
            raise SourceError("the DataFrame cannot be computed", detail=first_lines(error)) from error
        try:
            storage.create(f"{self._folder}/index.json", msgspec.json.encode(pieces))
        except AlreadyExistsError:
            there = self._index()
            return pieces if there is None else there
        return pieces

    def _lost(self) -> list[Piece]:
        raise SourceError(
            "what the DataFrame held is no longer in the job's storage",
            detail=f"{self._folder} in {self._context.storage.uri}",
            hint="start the step under another name, which computes the DataFrame again",
        )


def _ranges(lane: list[Piece], start: int, stop: int) -> list[tuple[Piece, int, int]]:
    """The parts of the files that hold the rows from `start` to `stop` of a lane."""
    ranges = []
    begin = 0
    for piece in lane:
        first, last = max(start, begin) - begin, min(stop, begin + piece.rows) - begin
        if first < last:
            ranges.append((piece, first, last))
        begin += piece.rows
    return ranges

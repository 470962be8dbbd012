"""How far an append log has been read, and whether that is far enough for somebody who has appended to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.connectors.protocol import Position, Split


class LogPosition(msgspec.Struct, frozen=True):
    """The next record to read: number `index` of segment `segment`.

    `offset`: how many are before it in all; `previous`: the CRC-32 of the header of the segment before, if `index` is 0."""

    log: str
    segment: int
    index: int
    offset: int
    previous: int = 0


class Piece(msgspec.Struct, frozen=True):
    """What a split reads: `records` of them from record `index` of segment `segment` on.

    `place`: the folder of the log; `offset`: of the first record."""

    place: str
    log: str
    segment: int
    index: int
    offset: int
    records: int


def read_up_to(log: str, position: Position, rest: Mapping[str, Sequence[Split]] = {}, skip: Mapping[str, int] = {}) -> int:
    """How many records of a log an epoch has read, from the beginning on; `rest`, `skip`: what was planned and not read. Pure."""
    if position is None:
        return 0
    at = msgspec.convert(position, LogPosition)
    found = at.offset if at.log == log else 0
    for partition, splits in rest.items():
        skipped = skip.get(partition, 0)
        for split in splits:
            piece = piece_of(split.what)
            if piece.log == log:
                found = min(found, piece.offset + skipped)
            skipped = 0
    return found


def piece_of(what: Any) -> Piece:
    return msgspec.convert(what, Piece)

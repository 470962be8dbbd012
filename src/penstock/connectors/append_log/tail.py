"""The end of a log, as somebody who appends knows it: where it goes on, and which appends have been made."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from penstock.connectors.append_log.segment import Append, Header, numbers_in, read_header, segment_name
from penstock.storage import Storage

REMEMBERED = 100_000
"""Ids, of the newest appends: a retry that comes after so many others is taken for a new append."""


class Known(msgspec.Struct, frozen=True):
    """An append that is in the log. `end`: how many records there are up to its last one."""

    end: int
    records: int
    crc: int
    segment: int


class Tail:
    """Reads the newest segments when it is opened, and those that others have created since when it `catches_up`."""

    def __init__(self, log: Storage) -> None:
        self._log = log
        self.number = 1
        """Of the next segment."""
        self.end = 0
        self.previous = 0
        self.known: OrderedDict[str, Known] = OrderedDict()
        self._open()

    def catch_up(self) -> None:
        """Read what others have appended."""
        while (found := read_header(self._log, self.number)) is not None:
            self.add(*found)

    def add(self, header: Header, crc: int) -> None:
        """The next segment."""
        end = header.first
        for append in header.appends:
            end += append.records
            if append.id:
                self._remember(append, end, header.number)
        self.number, self.end, self.previous = header.number + 1, header.end, crc

    def _remember(self, append: Append, end: int, segment: int) -> None:
        self.known[append.id] = Known(end, append.records, append.crc, segment)
        self.known.move_to_end(append.id)
        while len(self.known) > REMEMBERED:
            self.known.popitem(last=False)

    def is_stray(self, number: int) -> bool:
        """Was a segment made below the beginning of the log, by somebody who has not looked for long?"""
        if number > 1:
            return not self._log.exists(segment_name(number - 1))
        return numbers_in(self._log).start != 1

    def _open(self) -> None:
        """The newest segments, as many as ids are remembered of. The newest one is never removed."""
        newest: list[tuple[Header, int]] = []
        while not newest:
            ids = 0
            numbers = numbers_in(self._log)
            for number in reversed(numbers):
                found = read_header(self._log, number)
                if found is None or ids >= REMEMBERED:  # removed meanwhile, as all before it
                    break
                newest.append(found)
                ids += sum(1 for append in found[0].appends if append.id)
            if not numbers:
                break
        for header, crc in reversed(newest):
            self.add(header, crc)
        self.catch_up()

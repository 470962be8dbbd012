"""Rows that wait for their time: columns as they came, with their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.ids import Milliseconds
from penstock.records import Batch, Records
from penstock.runtime.frames import Codes

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Part:
    """Some rows of a batch, with their times."""

    batch: Batch
    keys: list[bytes]
    codes: Codes
    times: Ints

    def take(self, rows: Ints) -> Part:
        """Some rows, with only their keys."""
        numbers, codes = np.unique(self.codes[rows], return_inverse=True)
        keys = [self.keys[number] for number in numbers.tolist()]
        return Part(self.batch.take(rows), keys, codes.astype(np.int32), self.times[rows])


class Waiting:
    """Rows that have come and are not due, in order of arrival."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def add(self, part: Part) -> None:
        if len(part.times):
            self.parts.append(part)

    def take(self, until: Milliseconds) -> list[Part]:
        """Take out those that are due."""
        due, rest = [], []
        for part in self.parts:
            is_due = part.times <= until
            if is_due.all():
                due.append(part)
            elif is_due.any():
                due.append(part.take(np.flatnonzero(is_due)))
                rest.append(part.take(np.flatnonzero(~is_due)))
            else:
                rest.append(part)
        self.parts = rest
        return due


class Due:
    """Rows that are due, of several parts, as one numbered sequence."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        numbers: dict[bytes, int] = {}
        codes = []
        for part in parts:
            if not numbers:
                numbers = {key: number for number, key in enumerate(part.keys)}
                codes.append(part.codes.astype(np.int64))
            else:
                mine = [numbers.setdefault(key, len(numbers)) for key in part.keys]
                codes.append(np.asarray(mine, dtype=np.int64)[part.codes])
        self.numbers = numbers
        self.keys = list(numbers)
        self.codes: Ints = np.concatenate(codes) if codes else np.zeros(0, dtype=np.int64)
        self.times: Ints = np.concatenate([part.times for part in parts]) if parts else np.zeros(0, dtype=np.int64)
        self._starts = np.cumsum([0, *(len(part.times) for part in parts)])

    def __len__(self) -> int:
        return len(self.times)

    def values(self, rows: Ints) -> list[Any]:
        """The records of some rows, given in ascending order."""
        found: list[Any] = []
        for number, part in enumerate(self.parts):
            start, stop = self._starts[number], self._starts[number + 1]
            mine = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)] - start
            if len(mine) == len(part.times):
                found += part.batch.values()
            elif len(mine):
                found += part.batch.take(mine).values()
        return found


def waited(events: list[tuple[bytes, Milliseconds, Any]]) -> Part:
    """Events that waited in state, as rows."""
    numbers: dict[bytes, int] = {}
    codes = [numbers.setdefault(key, len(numbers)) for key, _, _ in events]
    times = np.asarray([time for _, time, _ in events], dtype=np.int64)
    return Part(Records([value for _, _, value in events]), list(numbers), np.asarray(codes, dtype=np.int32), times)

"""Records that a source cannot read, on their way to its dead letters.

A reader yields them between its other batches, as a `Rejected` batch: in its place in the split's order, like any other, so
that what is read again is set aside once.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import msgspec

from penstock.plan.definition import ErrorPolicy
from penstock.records import Records


class RejectedRecord(msgspec.Struct, frozen=True):
    """A dead letter of a source: what was there, where, and why it could not be read.

    `position` is the source's own way to say where: topic, partition and offset, or file and byte. `value`, `key` and
    `headers` are as they were found. `timestamp_ms`: the time of the record, as far as it is known without reading it;
    `rejected_ms`: the processing time of the epoch that it was rejected in. `step`: the source's.
    """

    system: str
    position: dict[str, Any]
    value: bytes | None
    error: str
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = []
    timestamp_ms: int | None = None
    rejected_ms: int = 0
    step: str = ""


class Rejected(Records):
    """A batch of `RejectedRecord`s: no rows of the stream."""

    __slots__ = ()

    def slice(self, start: int, stop: int) -> Rejected:
        return Rejected(self._values[start:stop])


@runtime_checkable
class RejectsRecords(Protocol):
    """A source that says what becomes of records it cannot read. With `"dead_letter"` its readers yield `Rejected` batches."""

    @property
    def on_bad_record(self) -> ErrorPolicy: ...

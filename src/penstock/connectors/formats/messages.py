"""Formats of messages: payloads of bytes, one for each record, as a broker keeps them. Decoded and encoded in bulk.

- A `MessageFormat` is a definition: frozen, picklable. It makes a `Decoder` and an `Encoder` in the worker.
- `Decoder.decode` takes a run of payloads and gives a batch with a row for each, or raises if any of them cannot be read:
  `decoded` then finds those, and gives the others.
- What it raises says that the payload is bad (`UNREADABLE`), or that something else went wrong: any other error, say that a
  schema registry does not answer, which is no fault of the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec
import pyarrow as pa

from penstock.plan.schema import Schema
from penstock.records import Batch, RowType

UNREADABLE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    OverflowError,
    RecursionError,
    EOFError,
    msgspec.MsgspecError,
    pa.ArrowException,
)
"""What a decoder raises about its payloads."""


class Decoder(Protocol):
    def decode(self, payloads: Sequence[bytes]) -> Batch:
        """A row for each payload, in their order."""
        ...


class Encoder(Protocol):
    def encode(self, batch: Batch) -> list[bytes]:
        """A payload for each row."""
        ...


@runtime_checkable
class MessageFormat(Protocol):
    """The definition of a format."""

    @property
    def row(self) -> RowType:
        """What a row is as a record."""
        ...

    def decoder(self) -> Decoder: ...

    def encoder(self) -> Encoder: ...

    def known_columns(self) -> Schema | None:
        """The columns of its rows, where they are known before any is read."""
        ...

    def describe(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A payload that cannot be decoded. `index`: in the run it came in."""

    index: int
    error: str


def decoded(decoder: Decoder, payloads: Sequence[bytes]) -> Iterator[tuple[int, Batch] | Unreadable]:
    """A run of payloads as batches, each with the index of its first payload, and what cannot be read, in order.

    A run is decoded at once. If that fails it is halved until the payloads at fault are alone: the others cost little more,
    and what becomes of a payload does not depend on its neighbours.
    """
    waiting = [(0, len(payloads))]
    while waiting:
        start, stop = waiting.pop()
        if start == stop:
            continue
        try:
            batch = decoder.decode(payloads[start:stop])
        except UNREADABLE as error:
            if stop - start == 1:
                yield Unreadable(start, reason(error))
                continue
            middle = (start + stop) // 2
            waiting += [(middle, stop), (start, middle)]
            continue
        if len(batch) != stop - start:
            raise AssertionError(f"{type(decoder).__name__} made {len(batch)} rows of {stop - start} payloads")
        yield start, batch


def reason(error: BaseException) -> str:
    """What an error says, in a line."""
    said = str(error).strip().splitlines()
    name = type(error).__name__
    return (
        f"{name}: {said[0][:300]}"
        if said and not isinstance(error, msgspec.MsgspecError | pa.ArrowException)
        else (said[0][:300] if said else name)
    )

"""The sending side of an exchange: batches in, frames for each target partition out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import PlanError, UserCodeError
from penstock.functions import function_location
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds, StepId
from penstock.plan.exchange import Exchange, KeySelector, no_key
from penstock.records import Batch, Columns, Timestamps, to_list
from penstock.runtime.fields import fields_of
from penstock.runtime.frames import (
    HEAD_SIZE,
    Codes,
    Frame,
    Keyed,
    LapChanges,
    Payload,
    RowTypes,
    encode_changes,
    encode_frame,
    encode_payload,
)
from penstock.runtime.loops.rounds import Rounds
from penstock.runtime.ordering import ticked, with_ticks
from penstock.runtime.unshippable import cannot_be_sent
from penstock.state.encoding.keys import KeyCodec
from penstock.state.key_groups import KeyGroups


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """An edge between two neighbouring stages: `index` is its number in the plan.

    It starts at an output of `step`, or, with `relay_of`, passes on what that channel brought. It ends at `ends` (step, port),
    unless a later channel relays it.
    """

    index: int
    exchange: Exchange
    from_stage: int
    step: StepId
    tag: str | None = None
    relay_of: int | None = None
    ends: tuple[tuple[StepId, int], ...] = ()
    ordered: bool = False
    """A step that sees order follows: records travel with their ticks."""
    loop: StepId | None = None
    """It starts within this loop: records travel with their rounds."""


class FrameWriter:
    """Collects the frames of one task, for all its channels, and counts them by target."""

    __slots__ = ("_partition", "_rows", "counts", "parallelism", "ready")

    def __init__(self, partition: int, parallelism: int, rows: RowTypes) -> None:
        self._partition = partition
        self._rows = rows
        self.parallelism = parallelism
        self.counts = [0] * parallelism
        self.ready: list[tuple[int, bytes]] = []

    def send(
        self,
        target: int,
        channel: int,
        watermark: Milliseconds,
        payload: Payload | bytes,
        lane: int | None = None,
        rounds: int = 0,
    ) -> None:
        body = (payload,) if isinstance(payload, bytes) else encode_payload(payload, self._rows)
        self.ready.append((target, encode_frame(channel, self._partition, self.counts[target], watermark, body, lane, rounds)))
        self.counts[target] += 1

    def send_changes(self, changes: LapChanges) -> None:
        """To the same partition."""
        target = self._partition
        self.ready.append((target, encode_changes(target, self.counts[target], changes)))
        self.counts[target] += 1

    def take(self) -> list[tuple[int, bytes]]:
        ready, self.ready = self.ready, []
        return ready


class ChannelWriter:
    """Sends the batches of one channel. Receives like an operator: `on_batch`, `on_watermark`."""

    def __init__(
        self,
        channel: Channel,
        frames: FrameWriter,
        *,
        partition: int,
        codec: KeyCodec,
        key_groups: KeyGroups,
        watermark: Milliseconds,
        rounds: Rounds | None = None,
    ) -> None:
        self.channel = channel
        self._rounds = rounds or Rounds()
        self.watermark = watermark
        self.ended = False
        self.before_end: Milliseconds | None = None
        """Where time was before it ended; None: idle."""
        self.reached = watermark if watermark < MAX_WATERMARK else MIN_WATERMARK
        """Where time got before it ended or fell idle."""
        self.idle = False
        self._frames = frames
        self._partition = partition
        self._codec = codec
        self._targets = frames.parallelism
        self._key_groups = key_groups
        self._next = partition
        self._send = {
            "key_by": self._by_key,
            "rebalance": self._spread,
            "broadcast": self._to_all,
            "forward": self._forward,
        }[channel.exchange.kind]

    def on_batch(self, batch: Payload) -> None:
        if len(batch):
            self._send(ticked(batch, self.watermark) if self.channel.ordered else with_ticks(batch, None))

    def on_watermark(self, watermark: Milliseconds | None) -> None:
        if watermark == MAX_WATERMARK and not self.ended:
            self.ended, self.before_end = True, None if self.idle else self.watermark
        self.idle = watermark is None
        if watermark is not None and watermark > self.watermark:
            self.watermark = watermark
            if watermark < MAX_WATERMARK:
                self.reached = watermark

    def relay(self, frame: Frame) -> None:
        """Pass a frame's payload on, undecoded, to the same partition of the next stage."""
        body = frame.data[HEAD_SIZE:]
        if self.channel.ordered:
            self._frames.send(self._partition, self.channel.index, frame.watermark, body, frame.lane, frame.rounds)
        else:
            self._frames.send(self._partition, self.channel.index, self.watermark, body, rounds=frame.rounds)

    def _emit(self, target: int, payload: Payload) -> None:
        batch = payload.batch if isinstance(payload, Keyed) else payload
        try:
            watermark = self.watermark if batch.ticks is None else int(batch.ticks[0])
            rounds = self._rounds.of(self.channel.loop)
            self._frames.send(target, self.channel.index, watermark, payload, rounds=rounds)
        except Exception as error:
            records = batch.values()
            raise cannot_be_sent(self.channel.step, records, error) from error

    def _forward(self, batch: Payload) -> None:
        self._emit(self._partition, batch)

    def _to_all(self, batch: Payload) -> None:
        for target in range(self._targets):
            self._emit(target, batch)

    def _spread(self, batch: Payload) -> None:
        """Round robin by runs: one slice of the batch for each target, starting with the next in turn. Records with ticks: to
        whom a record goes depends on its tick, and on its place among the records of that tick."""
        assert not isinstance(batch, Keyed)
        size, targets = len(batch), self._targets
        if batch.ticks is not None:
            chosen = _dealt(batch.ticks, targets)
            for target in range(targets):
                if len(rows := np.flatnonzero(chosen == target)):
                    self._emit(target, batch.take(rows))
            return
        bounds = [size * i // targets for i in range(targets + 1)]
        for i in range(targets):
            if bounds[i] < bounds[i + 1]:
                self._emit((self._next + i) % targets, batch.take(np.arange(bounds[i], bounds[i + 1])))
        self._next = (self._next + size) % targets

    def _by_key(self, batch: Payload) -> None:
        column = None
        if isinstance(batch, Keyed):
            keys, codes, batch = batch.keys, batch.codes, batch.batch
        else:
            keys, codes = distinct_keys(batch, self.channel.exchange, self._codec, self.channel.step)
            column = _key_column(batch, self.channel.exchange.selector)
        targets = self._targets
        if targets == 1:
            self._emit(0, Keyed(batch, keys, codes, column))
            return
        target_of_key = (self._key_groups.of_many(keys) * targets // self._key_groups.count).astype(np.int32)
        target_of_row = target_of_key[codes]
        for target in range(targets):
            rows = np.flatnonzero(target_of_row == target)
            if len(rows) == 0:
                continue
            mine = np.flatnonzero(target_of_key == target)
            renumber = np.empty(len(keys), dtype=np.int32)
            renumber[mine] = np.arange(len(mine), dtype=np.int32)
            self._emit(target, Keyed(batch.take(rows), [keys[i] for i in mine.tolist()], renumber[codes[rows]], column))


def _dealt(ticks: Timestamps, targets: int) -> npt.NDArray[np.int64]:
    """A target for each record: in turn within a tick, beginning anywhere."""
    first = np.concatenate(([True], ticks[1:] != ticks[:-1]))
    starts = np.flatnonzero(first)
    place = np.arange(len(ticks)) - starts[np.cumsum(first) - 1]
    scrambled = (ticks.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    chosen: npt.NDArray[np.int64] = (scrambled.astype(np.int64) + place) % targets
    return chosen


def distinct_keys(batch: Batch, exchange: Exchange, codec: KeyCodec, step: str) -> tuple[list[bytes], Codes]:
    """The encoded distinct keys of a batch, and for each row the index of its key."""
    selector = exchange.selector
    if selector is no_key:
        return [codec.encode(None)], np.zeros(len(batch), dtype=np.int32)
    if not callable(selector) and isinstance(batch, Columns):
        assert selector is not None
        return _column_keys(batch, selector, codec, step)
    keys = _record_keys(batch.values(), selector, step)
    if codec.key_type is None and not _of_one_kind(keys):
        encoded = codec.encode_many(keys)  # 1, 1.0 and True are equal to Python, and three keys
        distinct, codes = _indexed(encoded, step)
        return distinct, codes
    found, codes = _indexed(keys, step)
    return codec.encode_many(found), codes


def _key_column(batch: Batch, selector: KeySelector | None) -> int | None:
    """The number of the column that is the key; None if that is not one column, or equal keys may differ in it (0.0 and -0.0)."""
    if not isinstance(batch, Columns) or not isinstance(selector, tuple) or len(selector) != 1:
        return None
    field, schema = selector[0], batch.data.schema
    column: int = field if isinstance(field, int) else schema.get_field_index(field)
    return None if column < 0 or pa.types.is_floating(schema.field(column).type) else column


def _indexed(keys: list[Any], step: str) -> tuple[list[Any], Codes]:
    index: dict[Any, int] = {}
    try:
        codes = np.fromiter((index.setdefault(key, len(index)) for key in keys), dtype=np.int32, count=len(keys))
    except TypeError as error:
        raise PlanError(
            f"a key of step {step!r} cannot be a key: {error}",
            hint="keys must be hashable: a str, an int, or a tuple of such",
        ) from error
    return list(index), codes


_SIMPLE = frozenset((str, int, bytes, bool, float, type(None), datetime))


def _of_one_kind(keys: list[Any]) -> bool:
    """Whether keys that are equal are surely the same key."""
    kinds = set(map(type, keys))
    if len(kinds) != 1:
        return not kinds & {int, float, bool} and kinds <= _SIMPLE
    if kinds == {tuple}:
        return len(set(map(len, keys))) == 1 and all(
            len(inner := set(map(type, column))) == 1 and inner <= _SIMPLE for column in zip(*keys, strict=True)
        )
    return True


def _record_keys(values: list[Any], selector: KeySelector | None, step: str) -> list[Any]:
    keys: list[Any] = []
    if callable(selector):
        try:
            keys.extend(map(selector, values))
            if len(keys) < len(values):
                raise StopIteration
        except Exception as error:
            raise UserCodeError(
                f"the key function of step {step!r} raised {type(error).__name__}: {error}",
                detail=f"function: {function_location(selector)}\nrecord: {values[len(keys)]!r:.500}",
                hint="the function must return a key for every record; filter out records without one before key_by",
            ) from error
        return keys
    assert selector is not None
    columns = [fields_of(values, field, step) for field in selector]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _column_keys(batch: Columns, selector: tuple[str | int, ...], codec: KeyCodec, step: str) -> tuple[list[bytes], Codes]:
    columns = [_column(batch.data, field, step) for field in selector]
    encoded = [column.dictionary_encode(null_encoding="encode") for column in columns]
    codes = encoded[0].indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    if len(encoded) == 1:
        keys = codec.encode_many(to_list(encoded[0].dictionary))
        return _merged(keys, codes, step) if _is_floating(columns) else (keys, codes)
    combined = codes.astype(np.int64)
    for part in encoded[1:]:
        combined = combined * len(part.dictionary) + part.indices.to_numpy(zero_copy_only=False)
    _, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
    picked = [map(to_list(part.dictionary).__getitem__, part.indices.take(pa.array(first)).to_pylist()) for part in encoded]
    keys, codes = codec.encode_many(list(zip(*picked, strict=True))), inverse.astype(np.int32)
    return _merged(keys, codes, step) if _is_floating(columns) else (keys, codes)


def _is_floating(columns: list[pa.Array]) -> bool:
    return any(pa.types.is_floating(column.type) for column in columns)


def _merged(keys: list[bytes], codes: Codes, step: str) -> tuple[list[bytes], Codes]:
    """0.0 and -0.0 are two values to Arrow, and one key."""
    distinct, numbers = _indexed(keys, step)
    return distinct, numbers[codes]


def _column(data: pa.RecordBatch, field: str | int, step: str) -> pa.Array:
    names = data.schema.names
    if field in names or (isinstance(field, int) and field < len(names)):
        column = data.column(field)
        if pa.types.is_nested(column.type):
            raise PlanError(
                f"step {step!r}: key_by({field!r}): values of type {column.type} cannot be keys",
                hint="choose a column of plain values, or a function that makes a key of the record",
            )
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    raise PlanError(
        f"step {step!r}: key_by({field!r}): there is no such column",
        detail=f"columns: {', '.join(names)}",
        hint="name one of the columns, or give a function",
    )

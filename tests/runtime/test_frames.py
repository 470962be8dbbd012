"""Payloads come out of a frame as they went in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.ids import StepId
from penstock.plan.exchange import Exchange
from penstock.records import DICT_ROW, Columns, Records
from penstock.runtime.exchange import Channel, ChannelWriter, FrameWriter
from penstock.runtime.frames import (
    Frame,
    Keyed,
    Payload,
    RowTypes,
    decode_payload,
    encode_frame,
    encode_payload,
    unkeyed,
)
from penstock.state.encoding.keys import encode_key, key_codec
from penstock.state.key_groups import NEW_JOBS, KeyGroups, partition_of

ROWS = RowTypes([DICT_ROW])
WORDS = pa.array(["to", "be", None, "to"])
BATCHES = {
    "plain": pa.record_batch({"n": pa.array([1, 2, 3, 4]), "word": WORDS}),
    "dictionary": pa.record_batch({"word": WORDS.dictionary_encode()}),
    "dictionary in a list": pa.record_batch({"words": pa.ListArray.from_arrays([0, 1, 1, 2, 4], WORDS.dictionary_encode())}),
    "nested": pa.record_batch({"s": pa.array([{"a": 1, "w": ["x"]}] * 4)}),
    "a slice": pa.record_batch({"n": pa.array(range(10))}).slice(3, 4),
}


def again(payload: Payload) -> Payload:
    frame = encode_frame(3, 1, 7, -5, encode_payload(payload, ROWS))
    head = Frame(frame)
    assert (head.channel, head.upstream, head.sequence, head.watermark) == (3, 1, 7, -5)
    return decode_payload(frame, ROWS)


@pytest.mark.parametrize("name", sorted(BATCHES))
@pytest.mark.parametrize("timed", [False, True])
def test_columns(name: str, timed: bool) -> None:
    data = BATCHES[name]
    times = np.arange(2 * data.num_rows, dtype=np.int64)[::2] if timed else None
    found = again(Columns(data, DICT_ROW, times))
    assert isinstance(found, Columns)
    assert found.data.equals(data)
    assert (None if found.timestamps is None else found.timestamps.tolist()) == (None if times is None else times.tolist())


def test_keyed_records() -> None:
    codes = np.asarray([0, 9, 1, 9, 0, 9], dtype=np.int32)[::2]
    found = again(Keyed(Records(["a", ("b", 1), None]), [b"x", b"y"], codes))
    assert isinstance(found, Keyed)
    assert (found.batch.values(), found.keys, found.codes.tolist()) == (["a", ("b", 1), None], [b"x", b"y"], [0, 1, 0])


KEYS = {
    "numbers": pa.array([7, 8, 7, None] * 5, pa.int16()),
    "words": pa.array(["to", "be", "to", None] * 5),
    "times": pa.array([1, 2, 1, None] * 5, pa.timestamp("us", "UTC")),
    "dictionary": pa.array(["to", "be", "to", None] * 5).dictionary_encode(),
    "floats": pa.array([0.0, -0.0, 0.0, None] * 5),
}


@pytest.mark.parametrize("name", sorted(KEYS))
@pytest.mark.parametrize("only", [False, True])
@pytest.mark.parametrize("targets", [1, 2])
def test_a_column_of_keys(name: str, only: bool, targets: int) -> None:
    """It is not sent row by row, and is there when the frame is read."""
    schema = pa.schema([pa.field("k", KEYS[name].type, metadata={"of": "k"})], metadata={"of": "all"})
    data = pa.RecordBatch.from_arrays([KEYS[name]], schema=schema)
    if not only:
        data = data.add_column(0, "n", pa.array(range(20)))
    for frame, rows in sent(data, "k", targets):
        found = decode_payload(frame, ROWS)
        assert isinstance(found, Keyed)
        assert isinstance(found.batch, Columns)
        assert found.batch.data.schema.equals(data.schema, check_metadata=True)
        assert str(found.batch.data.to_pylist()) == str(data.take(pa.array(rows)).to_pylist())  # -0.0 is not 0.0 here
        assert [found.keys[code] for code in found.codes.tolist()] == [encode_key(data.column("k")[row].as_py()) for row in rows]


def sent(data: pa.RecordBatch, column: str, targets: int) -> list[tuple[bytes, list[int]]]:
    """The frames of a batch, each with the rows that are in it."""
    groups = KeyGroups(128, NEW_JOBS)
    frames = FrameWriter(0, targets, ROWS)
    channel = Channel(index=0, exchange=Exchange(kind="key_by", selector=(column,)), from_stage=0, step=StepId("s"))
    writer = ChannelWriter(channel, frames, partition=0, codec=key_codec(), key_groups=groups, watermark=0)
    writer.on_batch(Columns(data, DICT_ROW))
    owners = [partition_of(groups.of(encode_key(value.as_py())), targets, 128) for value in data.column(column)]
    return [(frame, [row for row, owner in enumerate(owners) if owner == target]) for target, frame in frames.take()]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("ticked", [False, True])
def test_kinds(keyed: bool, columns: bool, ticked: bool) -> None:
    kinds = np.asarray([0, 9, 1, 9, 2, 9, 3, 9], dtype=np.int8)[::2]
    ticks = np.arange(4, dtype=np.int64) if ticked else None
    batch = Columns(BATCHES["plain"], DICT_ROW, ticks, ticks, kinds) if columns else Records([1, 2, 3, 4], ticks, ticks, kinds)
    found = again(Keyed(batch, [b"x", b"y"], np.asarray([0, 1, 1, 0], dtype=np.int32)) if keyed else batch)
    inner = unkeyed(found)
    assert inner.values() == batch.values()
    assert inner.kinds is not None
    assert inner.kinds.dtype == np.int8
    assert inner.kinds.tolist() == [0, 1, 2, 3]
    assert (None if inner.ticks is None else inner.ticks.tolist()) == (None if ticks is None else ticks.tolist())


@pytest.mark.parametrize("batch", [Records(["a", "b"]), Columns(BATCHES["plain"], DICT_ROW)])
def test_an_append_only_stream_pays_nothing_for_kinds(batch: Records | Columns) -> None:
    """A frame of it ends where its rows end, and one with kinds is longer by a byte for each row."""
    plain = b"".join(encode_payload(batch, ROWS))
    with_kinds = b"".join(encode_payload(batch.with_kinds(np.zeros(len(batch), dtype=np.int8)), ROWS))
    assert with_kinds == plain + bytes(len(batch))
    assert unkeyed(again(batch)).kinds is None


@pytest.mark.parametrize("kind", ["key_by", "rebalance", "broadcast", "forward"])
@pytest.mark.parametrize("ordered", [False, True])
def test_kinds_stay_with_their_rows_in_every_exchange(kind: Any, ordered: bool) -> None:
    rows = [(f"k{n % 3}", n) for n in range(20)]
    kinds = np.asarray([n % 4 for n in range(20)], dtype=np.int8)
    groups = KeyGroups(128, NEW_JOBS)
    frames = FrameWriter(0, 3, ROWS)
    exchange = Exchange(kind=kind, selector=(0,) if kind == "key_by" else None)
    channel = Channel(index=0, exchange=exchange, from_stage=0, step=StepId("s"), ordered=ordered)
    writer = ChannelWriter(channel, frames, partition=0, codec=key_codec(), key_groups=groups, watermark=0)
    ticks = np.arange(20, 0, -1, dtype=np.int64)
    writer.on_batch(Records(rows, None, ticks, kinds))
    found = [unkeyed(decode_payload(frame, ROWS)) for _, frame in frames.take()]
    assert {target.kinds is None for target in found} == {False}
    for target in found:
        assert target.kinds is not None
        assert target.kinds.tolist() == [value[1] % 4 for value in target.values()]
    assert sum(map(len, found)) == 20 * (3 if kind == "broadcast" else 1)


def test_few_rows_for_a_key_go_as_they_are() -> None:
    few = pa.record_batch({"k": pa.array(range(1000)), "n": pa.array(range(1000))})
    many = pa.record_batch({"k": pa.array([1, 2] * 500), "n": pa.array(range(1000))})
    [(large, _)], [(small, _)] = sent(few, "k", 1), sent(many, "k", 1)
    assert len(small) < 8 * 1000 + 2 * 1000 + 2000 < len(large)


def test_many_keys() -> None:
    codes = np.arange(70_000, dtype=np.int32)
    found = again(Keyed(Records(list(range(70_000))), [b"%d" % i for i in range(70_000)], codes))
    assert isinstance(found, Keyed)
    assert found.codes.dtype == np.int32
    assert (found.codes == codes).all()

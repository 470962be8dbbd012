"""Payloads come out of a frame as they went in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.records import DICT_ROW, Columns, Records
from penstock.runtime.frames import Frame, Keyed, Payload, RowTypes, decode_payload, encode_frame, encode_payload

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

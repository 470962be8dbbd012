"""The parts of a stored entry's key, for keys of every form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.state.encoding.keys import decode_key, encode_key
from penstock.state.entries.entry_keys import end_of_value, split_entry_key
from penstock.state.entries.layout import value_prefix

flat = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=300),
    st.binary(max_size=300),
)
keys = st.one_of(
    flat, st.lists(flat, max_size=20).map(tuple), st.tuples(flat, st.tuples(flat)), st.datetimes(timezones=st.timezones())
)


@given(key=keys, sub_key=keys, group=st.integers(0, 300), window=st.sampled_from([b"", bytes(range(16))]))
def test_a_key_is_taken_apart(key: Any, sub_key: Any, group: int, window: bytes) -> None:
    encoded, sub = encode_key(key), encode_key(sub_key)
    head = value_prefix(group, 7)
    of_value = split_entry_key(head + encoded + window, "value", len(window))
    assert of_value == (encoded + window, encoded, b"")
    of_map = split_entry_key(head + encoded + window + sub, "map", len(window))
    assert of_map == (encoded + window, encoded, sub)
    assert decode_key(of_map.key) == decode_key(encoded)
    of_list = split_entry_key(head + encoded + window + bytes(8), "list", len(window))
    assert of_list == (encoded + window, encoded, bytes(8))


@pytest.mark.parametrize("length", [0, 15, 16, 31, 32, 255, 256, 65535, 65536])
def test_lengths_at_every_border(length: int) -> None:
    for key in ("x" * length, b"x" * length, (1,) * length):
        assert end_of_value(encode_key(key) + b"more") == len(encode_key(key))


def test_bytes_that_are_no_key_are_refused() -> None:
    for data in (b"", b"\xc1", b"\xa5ab", b"\x92\x01", b"\xdb\xff"):
        with pytest.raises(StateError, match="not as keys are written"):
            end_of_value(data)

"""What every kind of state promises, and where an encoded key ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK
from penstock.state.encoding.keys import decode_key, encode_key
from penstock.state.entries.kinds import EntryPlace, is_internal, kind_of, kinds, register
from penstock.state.entries.state_info import StateInfo
from penstock.state.entries.store_keys import end_of_value

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
times = st.integers(MIN_WATERMARK, MAX_WATERMARK)


@given(
    name=st.sampled_from([name for name, kind in kinds().items() if not kind.many_keys]),
    key=keys,
    sub_key=keys,
    chunk=st.binary(min_size=8, max_size=8),
    time=times,
    window=st.sampled_from([b"", bytes(range(16))]),
)
def test_a_key_is_taken_apart_and_joined(name: str, key: Any, sub_key: Any, chunk: bytes, time: int, window: bytes) -> None:
    kind, encoded = kinds()[name], encode_key(key)
    tail = {"list": chunk, "map": encode_key(sub_key)}.get(name, b"")
    place = EntryPlace(encoded, window, tail, time if kind.by_time else None)
    raw = kind.join(place)
    assert kind.place(raw, len(window)) == place
    assert decode_key(place.key) == decode_key(encoded)
    heads, spaces, tails = kind.split([raw, raw], len(window))
    assert spaces == [encoded + window] * 2
    assert kind.keys([raw], len(window)) == [encoded]
    assert raw == (heads or [b""])[0] + spaces[0] + (tails or [b""])[0]
    assert raw.startswith(kind.shared_prefix(raw))
    assert (kind.shared_prefix(raw) != raw) == kind.spread
    info = StateInfo("step", "state", name, namespace=len(window))
    assert kind.holds(encoded, [raw], [b""], info) == [True]
    assert kind.holds(encode_key((key, 1)), [raw], [b""], info) == [False]
    assert kind.due(raw) == place.time


@given(items=st.lists(st.binary(max_size=300), min_size=1, max_size=5), name=st.sampled_from(list(kinds())))
def test_items_are_put_together_and_taken_apart(items: list[bytes], name: str) -> None:
    kind = kinds()[name]
    mine = items if kind.spread else items[:1]
    mine = [] if kind.internal else mine
    assert kind.items(kind.entry(mine)) == mine
    assert kind.value(EntryPlace(b""), kind.values(mine if kind.spread else b"x")) == (
        mine if kind.spread else None if kind.internal else b"x"
    )


def test_a_kind_has_one_name_and_an_unknown_one_is_refused() -> None:
    assert all(kind.name == name for name, kind in kinds().items())
    assert is_internal("timers")
    assert not is_internal("value")
    assert not is_internal("not yet")
    with pytest.raises(StateError, match="two kinds of state are named 'map'"):
        register([kinds()["map"]])
    with pytest.raises(StateError, match="'x' of step 's' is of kind 'not yet', which is not known"):
        kind_of(StateInfo("s", "x", "not yet"))


@pytest.mark.parametrize("length", [0, 15, 16, 31, 32, 255, 256, 65535, 65536])
def test_lengths_at_every_border(length: int) -> None:
    for key in ("x" * length, b"x" * length, (1,) * length):
        assert end_of_value(encode_key(key) + b"more") == len(encode_key(key))


def test_bytes_that_are_no_key_are_refused() -> None:
    for data in (b"", b"\xc1", b"\xa5ab", b"\x92\x01", b"\xdb\xff"):
        with pytest.raises(StateError, match="cannot be parsed"):
            end_of_value(data)

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError, StateError
from penstock.state.encoding.keys import encode_key, key_codec
from penstock.state.key_groups import (
    CRC32,
    MIXED,
    NEW_JOBS,
    KeyGroups,
    default_max_parallelism,
    groups_of,
    partition_of,
)

sizes = st.integers(1, 512).flatmap(lambda most: st.tuples(st.integers(1, most), st.just(most)))
hashes = st.sampled_from((CRC32, MIXED))
START = datetime(2000, 1, 1, tzinfo=UTC)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=40),
    st.binary(max_size=40),
    st.integers(-(2**31), 2**32).map(lambda seconds: START + timedelta(seconds=seconds)),
)
keys = st.one_of(plain, st.tuples(plain, plain), st.tuples(plain, st.tuples(plain, plain)))


@given(sizes)
def test_every_group_has_one_partition_and_ranges_are_the_inverse(size: tuple[int, int]) -> None:
    parallelism, most = size
    ranges = [groups_of(p, parallelism, most) for p in range(parallelism)]
    assert [group for groups in ranges for group in groups] == list(range(most))
    assert all(partition_of(group, parallelism, most) == p for p, groups in enumerate(ranges) for group in groups)
    assert all(ranges)


@given(st.binary(), st.integers(1, 32768), hashes)
def test_a_group_is_within_bounds(key: bytes, most: int, version: int) -> None:
    assert 0 <= KeyGroups(most, version).of(key) < most


@given(st.lists(keys, max_size=60), st.integers(1, 32768), hashes, st.sampled_from((0, 16)))
def test_many_at_once_are_in_the_groups_of_each(found: list[Any], most: int, version: int, namespace: int) -> None:
    """Whatever their type, and whether they are many or few."""
    groups = KeyGroups(most, version)
    encoded = [encode_key(key) for key in found]
    with_namespace = [key + bytes(range(namespace)) for key in encoded]
    for some in (with_namespace, with_namespace * 30, with_namespace[:1]):
        at_once = groups.of_many(some, namespace)
        assert at_once.dtype == np.int64
        assert at_once.tolist() == [groups.of(key, namespace) for key in some]
    assert groups.of_many(with_namespace, namespace).tolist() == groups.of_many(encoded).tolist()


def test_groups_are_the_same_everywhere() -> None:
    """On any machine, in any version: what is stored is found by them."""
    some = [b"", b"a", b"\xa3abc", b"\xff" * 100, encode_key(("eu", 7))]
    assert [KeyGroups(128, CRC32).of(key) for key in some[:3]] == [0, 67, 39]
    assert [KeyGroups(128, MIXED).of(key) for key in some] == [0, 70, 17, 72, 80]
    of_many = [0, 70, 19089, 11976, 19152]
    assert [KeyGroups(32768, MIXED).of(key) for key in some] == of_many
    assert KeyGroups(32768, MIXED).of_many(some * 20).tolist() == of_many * 20


def test_typed_keys_are_grouped_by_their_bytes() -> None:
    groups = KeyGroups(128, NEW_JOBS)
    assert groups.of(key_codec(str).encode("a")) == groups.of(encode_key("a"))


def test_they_travel_to_workers() -> None:
    assert pickle.loads(pickle.dumps(KeyGroups(7, CRC32))) == KeyGroups(7, CRC32)


def test_a_hash_of_the_future_is_refused() -> None:
    with pytest.raises(StateError, match="key hash 3; this Penstock knows 1 and 2") as refused:
        KeyGroups(128, 3)
    assert "newer" in refused.value.hint


def test_new_jobs_have_groups_enough_for_their_partitions() -> None:
    for parallelism in range(1, 4097):
        most = default_max_parallelism(parallelism)
        largest = max(len(groups_of(p, parallelism, most)) for p in range(0, parallelism, max(1, parallelism // 64)))
        assert most >= 128
        assert largest * parallelism <= most * 9 / 8
    assert default_max_parallelism(20_000) == 32768


@pytest.mark.parametrize(
    ("partition", "parallelism", "most"), [(0, 0, 8), (0, 9, 8), (2, 2, 8), (-1, 2, 8), (0, 1, 40000), (0, 1, 0)]
)
def test_nonsense_is_refused(partition: int, parallelism: int, most: int) -> None:
    with pytest.raises(ConfigError):
        groups_of(partition, parallelism, most)

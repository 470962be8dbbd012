from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.state.key_groups import group_of, groups_of, partition_of

sizes = st.integers(1, 512).flatmap(lambda most: st.tuples(st.integers(1, most), st.just(most)))


@given(sizes)
def test_every_group_has_one_partition_and_ranges_are_the_inverse(size: tuple[int, int]) -> None:
    parallelism, most = size
    ranges = [groups_of(p, parallelism, most) for p in range(parallelism)]
    assert [group for groups in ranges for group in groups] == list(range(most))
    assert all(partition_of(group, parallelism, most) == p for p, groups in enumerate(ranges) for group in groups)
    assert all(ranges)


@given(st.binary(), st.integers(1, 32768))
def test_a_group_is_within_bounds(key: bytes, most: int) -> None:
    assert 0 <= group_of(key, most) < most


def test_groups_are_the_same_everywhere() -> None:
    assert [group_of(key, 128) for key in (b"", b"a", b"\xa3abc")] == [0, 67, 39]


@pytest.mark.parametrize(
    ("partition", "parallelism", "most"), [(0, 0, 8), (0, 9, 8), (2, 2, 8), (-1, 2, 8), (0, 1, 40000), (0, 1, 0)]
)
def test_nonsense_is_refused(partition: int, parallelism: int, most: int) -> None:
    with pytest.raises(ConfigError):
        groups_of(partition, parallelism, most)

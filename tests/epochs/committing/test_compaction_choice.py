"""What is merged of a chain: odd files."""

from __future__ import annotations

import pytest

from penstock.epochs.committing.compaction import choose, read_size
from penstock.state.files.durable import FileRef


def ref(name: str, *, first: int = 0, last: int = 127, lo: int = 0, hi: int = 65536, size: int = 1000) -> FileRef:
    return FileRef(name, "delta", size, "", 1, first, last, lo, hi)


@pytest.mark.parametrize(("lo", "hi", "read"), [(0, 65536, 1000), (0, 64, 500), (96, 128, 250), (200, 300, 0)])
def test_of_a_file_only_the_own_groups_count(lo: int, hi: int, read: int) -> None:
    assert read_size(ref("a", lo=lo, hi=hi)) == read


def test_a_file_without_entries_after_rescaling() -> None:
    """It has no groups, and none of them is in the new partition."""
    empty = ref("empty", first=0, last=-1, lo=64, hi=128, size=100)
    assert read_size(empty) == 0
    assert choose([empty, ref("a"), ref("b")], 2) is not None

"""The newest entries of several runs, against a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.files.durable import Block
from penstock.state.files.merging import live, newest

keys = st.binary(min_size=1, max_size=2)
contents = st.dictionaries(keys, st.none() | st.binary(max_size=2))


def in_blocks(entries: dict[bytes, bytes | None], size: int) -> list[Block]:
    ordered = sorted(entries.items())
    cut = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return [([key for key, _ in part], [value for _, value in part]) for part in cut]


@given(st.lists(st.tuples(contents, st.integers(1, 4)), max_size=5))
def test_the_last_run_that_has_a_key_counts(runs: list[tuple[dict[bytes, bytes | None], int]]) -> None:
    expected: dict[bytes, bytes | None] = {}
    for entries, _ in runs:
        expected.update(entries)
    merged = list(newest([in_blocks(entries, size) for entries, size in runs]))
    assert [pair for block in merged for pair in zip(*block, strict=True)] == sorted(expected.items())
    left = [pair for block in live(merged) for pair in zip(*block, strict=True)]
    assert left == [(key, value) for key, value in sorted(expected.items()) if value is not None]


def test_a_block_of_each_run_is_read_ahead_and_no_more() -> None:
    read = [0, 0]

    def run(number: int) -> list[Block]:
        class Watched(list[Block]):
            def __iter__(self):  # type: ignore[no-untyped-def]
                for block in super().__iter__():
                    read[number] += 1
                    yield block

        return Watched([([bytes([2 * key + number])], [b""]) for key in range(100)])

    merged = newest([run(0), run(1)])
    for taken in range(50):
        assert next(merged)[0] == [bytes([taken])]
        assert max(read) <= taken // 2 + 2

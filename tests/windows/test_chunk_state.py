"""State of windows over columns: levels, loading by time, and nothing of what came and went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock import StreamEnvironment, TumblingWindows, Watermarks, count
from penstock.ids import MAX_WATERMARK
from penstock.state.encoding.keys import encode_key, key_codec
from penstock.state.key_groups import NEW_JOBS, KeyGroups
from penstock.testing import execute_inline
from penstock.windows.columnar.chunk_state import ChunkState
from penstock.windows.columnar.chunks import Chunk, KeyIndex, merged
from penstock.windows.columnar.measures import Counting
from penstock.windows.columnar.runs import runs_of

MEASURES = [Counting()]


class Store:
    """Committed entries, as a dict."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.entries.get(key)

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]:
        return {key: self.entries[key] for key in keys if key in self.entries}

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self.entries.items() if start <= key < stop))

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self.entries.items() if key.startswith(prefix)))


class Job:
    """Epochs on one state."""

    def __init__(self, groups: int = 2) -> None:
        self.store = Store()
        self.groups = groups
        self.due: int | None = None
        self.written: list[int] = []

    def epoch(self, rows: dict[int, list[int]], *, drop: tuple[int, ...] = ()) -> None:
        index, state = self.open()
        for end, keys in rows.items():
            state.add(end, chunk(index, keys))
        if drop:
            state.load(max(drop))
            state.drop(drop)
        changes = state.changes()
        self.due = state.next_due().get(7)
        self.written.append(sum(len(value) for _, value in changes if value is not None))
        for key, value in changes:
            if value is None:
                self.store.entries.pop(key, None)
            else:
                self.store.entries[key] = value

    def open(self) -> tuple[KeyIndex, ChunkState]:
        index = KeyIndex(key_codec(None))
        return index, ChunkState(
            self.store,
            state_id=7,
            groups=range(self.groups),
            next_due=self.due,
            key_groups=KeyGroups(self.groups, NEW_JOBS),
            index=index,
            merge=lambda chunks: merged(chunks, MEASURES),
            what="counts",
            where="step 'x'",
            due=lambda end: end - 1,
        )

    def counts(self, end: int) -> dict[Any, int]:
        index, state = self.open()
        state.load(MAX_WATERMARK)
        chunks = state.chunks(end)
        if not chunks:
            return {}
        whole = merged(chunks, MEASURES)
        return dict(zip((index.decoded()[key] for key in whole.keys.tolist()), whole.vectors[0][0].tolist(), strict=True))


def chunk(index: KeyIndex, keys: list[int]) -> Chunk:
    distinct = sorted(set(keys))
    counts = np.asarray([keys.count(key) for key in distinct], dtype=np.int64)
    return Chunk(index.numbers([encode_key(key) for key in distinct]), [[counts]])


@given(st.lists(st.dictionaries(st.sampled_from([10, 20, 30]), st.lists(st.integers(0, 9), min_size=1, max_size=8)), max_size=12))
def test_what_epochs_added_is_all_there(epochs: list[dict[int, list[int]]]) -> None:
    job = Job()
    for rows in epochs:
        job.epoch(rows)
    for end in (10, 20, 30):
        keys = [key for rows in epochs for key in rows.get(end, ())]
        assert job.counts(end) == {key: keys.count(key) for key in keys}
    assert job.due == (min((end - 1 for rows in epochs for end in rows), default=None))


def test_an_epoch_writes_a_small_multiple_of_its_change() -> None:
    job = Job()
    job.epoch({10: list(range(20_000))})
    whole = job.written[0]
    for epoch in range(200):
        job.epoch({10: [epoch * 7 % 20_000, epoch * 11 % 20_000]})
    assert sum(job.written[1:]) < whole / 2, "200 epochs of two keys each must not write 20,000 keys again"
    assert len(job.store.entries) <= 2 * 10, "levels are few"


def test_what_is_dropped_is_gone() -> None:
    job = Job()
    job.epoch({10: [1, 2], 20: [3]})
    job.epoch({10: [4]}, drop=(10,))
    assert job.counts(10) == {}
    assert job.counts(20) == {3: 1}
    assert job.due == 19
    job.epoch({30: [5]}, drop=(20, 30))
    assert job.store.entries == {}
    assert job.due is None


def test_a_window_that_opens_and_closes_in_an_epoch_leaves_nothing() -> None:
    env = StreamEnvironment("windows", parallelism=2)
    rows = [{"k": number % 5, "t": number} for number in range(100)]
    stream = env.from_collection(rows, watermarks=Watermarks.monotonous(timestamp="t", every=0.001))
    stream.key_by("k").window(TumblingWindows(milliseconds=10)).aggregate(count(), name="counts").print()
    result = execute_inline(env)
    assert [record.state_entries for record in result.history if record.records_in] == [None]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=40))
def test_runs(rows: list[tuple[int, int, int]]) -> None:
    keys, starts, lengths = (np.asarray(column, dtype=np.int64) for column in zip(*rows, strict=True))
    order, runs = runs_of(keys, starts, starts + lengths)
    wanted: list[list[int]] = []
    for row in sorted(range(len(rows)), key=lambda row: (rows[row][0], rows[row][1])):
        key, start, _ = rows[row]
        if wanted and rows[wanted[-1][0]][0] == key and start <= max(rows[r][1] + rows[r][2] for r in wanted[-1]):
            wanted[-1].append(row)
        else:
            wanted.append([row])
    found = [sorted(order[runs == run].tolist()) for run in range(int(runs[-1]) + 1)]
    assert found == [sorted(run) for run in wanted]


def test_runs_over_very_long_times() -> None:
    starts = np.asarray([0, 1 << 60, (1 << 60) + 5, 5], dtype=np.int64)
    order, runs = runs_of(np.asarray([0, 1, 1, 2]), starts, starts + 10)
    assert (order.tolist(), runs.tolist()) == ([0, 1, 2, 3], [0, 1, 1, 2])

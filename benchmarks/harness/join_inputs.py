"""Inputs of the joins benchmark, made once for given parameters.

Pairs: two streams of events over ten minutes: key (int64), ts (int64, milliseconds), v (int64, a number of its own). Keys and
times are uniform; events are in order of arrival, up to two seconds after their time. Each stream is in `left/` and `right/`,
dealt to two partitions in turn, each cut by arrival into SLICES files. The last event of each is an hour in the future, so
that time moves on past all others; it meets nobody (its key is not in use).

Looked up: events with a key (int64) and a value, in files likewise, and a table of (key, name, weight), a row for each key,
of which a tenth is missing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.inputs import made_once

PARTITIONS = 2
SLICES = 8
"""Files of a partition."""
BEGIN_MS = 1_700_000_040_000
SPAN_MS = 600_000
DELAY_MS = 2_000
SLACK_SECONDS = 5
"""What watermarks allow: more than events are delayed, so nothing is late."""
FUTURE_MS = BEGIN_MS + SPAN_MS + 3_600_000
BOUND_MS = 5_000
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class PairInput:
    folder: Path
    events: int
    """Of both streams."""
    keys: int

    def read(self, side: str) -> pa.Table:
        return pa.concat_tables([pq.read_table(path) for path in sorted((self.folder / side).glob("*.parquet"))])


@dataclass(frozen=True, slots=True)
class LookupInput:
    folder: Path
    events: int
    keys: int

    @property
    def table(self) -> Path:
        return self.folder / "table" / "table.parquet"

    def read(self) -> pa.Table:
        return pa.concat_tables([pq.read_table(path) for path in sorted((self.folder / "events").glob("*.parquet"))])


def pairs_of(events: int, keys: int, *, seed: int = 1) -> PairInput:
    """So many events of each of two streams."""
    name = f"pairs-{_FORMAT}-{events}-{keys}-{seed}"
    folder = made_once(name, f"two streams of {events:,} events, {keys:,} keys", partial(_write_pairs, events, keys, seed))
    return PairInput(folder, 2 * events, keys)


def lookups_of(events: int, keys: int, *, seed: int = 1) -> LookupInput:
    name = f"lookups-{_FORMAT}-{events}-{keys}-{seed}"
    folder = made_once(name, f"{events:,} events, a table of {keys:,} keys", partial(_write_lookups, events, keys, seed))
    return LookupInput(folder, events, keys)


def matches(data: PairInput) -> np.ndarray:
    """(number of the left event, number of the right one) of all pairs that are near, in order. By numpy alone."""
    left, right = data.read("left"), data.read("right")
    key, ts, v = (right[name].to_numpy() for name in ("key", "ts", "v"))
    order = np.lexsort((ts, key))
    span = 2 * (FUTURE_MS - BEGIN_MS)
    codes = key[order] * span + ts[order] - BEGIN_MS
    wanted = left["key"].to_numpy() * span + left["ts"].to_numpy() - BEGIN_MS
    starts, stops = np.searchsorted(codes, wanted - BOUND_MS, "left"), np.searchsorted(codes, wanted + BOUND_MS, "right")
    counts = stops - starts
    mine = np.repeat(left["v"].to_numpy(), counts)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    theirs = v[order][np.repeat(starts, counts) + within]
    pairs = np.stack((mine, theirs), axis=1)
    return pairs[np.lexsort((theirs, mine))]


def _write_pairs(events: int, keys: int, seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    for number, side in enumerate(("left", "right")):
        key, ts = rng.integers(0, keys, events - 1), BEGIN_MS + rng.integers(0, SPAN_MS, events - 1)
        order = np.argsort(ts + rng.integers(0, DELAY_MS + 1, events - 1), kind="stable")
        columns = {"key": np.r_[key[order], keys + number], "ts": np.r_[ts[order], FUTURE_MS], "v": np.arange(events)}
        _deal(pa.table(columns), folder / side)


def _write_lookups(events: int, keys: int, seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    _deal(pa.table({"key": rng.integers(0, keys, events), "v": np.arange(events)}), folder / "events")
    known = np.flatnonzero(rng.integers(0, 10, keys) > 0)
    table = pa.table({"key": known, "name": [f"customer {key}" for key in known.tolist()], "weight": rng.random(len(known))})
    (folder / "table").mkdir()
    pq.write_table(table, folder / "table" / "table.parquet")


def _deal(table: pa.Table, folder: Path) -> None:
    folder.mkdir()
    for number in range(PARTITIONS):
        # Dealt from the end, so that the last event is in the last file.
        rows = np.arange((table.num_rows - PARTITIONS + number) % PARTITIONS, table.num_rows, PARTITIONS)
        dealt = table.take(pa.array(rows))
        edges = np.linspace(0, dealt.num_rows, SLICES + 1).astype(int).tolist()
        for piece in range(SLICES):
            path = folder / f"{piece:04d}-{number}.parquet"
            pq.write_table(dealt.slice(edges[piece], edges[piece + 1] - edges[piece]), path)
            os.utime(path, (BEGIN_MS // 1000 + piece * PARTITIONS + number,) * 2)

"""Input with event time for windows, made once for given parameters: the same events as Parquet and as CSV.

Columns: key (int64), ts (int64, milliseconds), v (float64, thousandths in [0, 1)). Events are in order of arrival, up to two
seconds after their time, so `ts` is out of order by as much. They are dealt to two partitions in turn, each over all of the
time. For Parquet a partition is cut by arrival into SLICES files: `0003-1.parquet` is the fourth of the second partition. By
name and by age files are in order of time. For CSV, without a header, a partition is one file.

That is the layout "side by side". In the layout "in turn" there are as many Parquet files, cut by arrival from all events: each
begins where the one before it ends, as files do that are written every hour. Who reads two of them at a time is at two times.

The last event is far in the future, so that time moves on past all windows before it in every contender; windows with it do
not count.

Two distributions, both over 200 seconds:
- steady: keys and times are uniform;
- bursts: a key has half as many bursts as it has events on average, at uniform times; a burst has 1 to 3 events within
  8 seconds. With four events for a key and a gap of 10 seconds that makes nearly two sessions for a key of about two events.
  No pause is of exactly 10 seconds: what that means differs between systems.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from harness.inputs import made_once

PARTITIONS = 2
SLICES = 8
"""Files of a partition."""
BEGIN_MS = 1_700_000_040_000
"""The time of the first event: a full minute."""
SPAN_MS = 200_000
DELAY_MS = 2_000
SLACK_SECONDS = 5
"""What watermarks allow: more than events are delayed, so nothing is late."""
GAP_MS = 10_000
FUTURE_MS = BEGIN_MS + 3_600_000
"""The time of the last event."""
_BURST_MS = 8_000
_ROW_GROUPS = 2
_FORMAT = 1

Shape = Literal["steady", "bursts"]
Layout = Literal["side by side", "in turn"]


@dataclass(frozen=True, slots=True)
class TimedEvents:
    """A folder with `parquet/` and `csv/`."""

    folder: Path
    events: int
    keys: int

    @property
    def parquet(self) -> Path:
        return self.folder / "parquet"

    @property
    def csv(self) -> Path:
        return self.folder / "csv"

    def read(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Keys, times and values of all events but the one in the future."""
        table = pa.concat_tables([pq.read_table(path) for path in sorted(self.parquet.glob("*.parquet"))])
        key, ts, v = (table[name].to_numpy() for name in ("key", "ts", "v"))
        counts = ts < FUTURE_MS
        return key[counts], ts[counts], v[counts]


def timed_events_of(
    events: int, keys: int, shape: Shape = "steady", layout: Layout = "side by side", *, seed: int = 1
) -> TimedEvents:
    """The input with these parameters, made now or before."""
    name = f"timed-{_FORMAT}-{shape}-{events}-{keys}-{seed}" + ("-in-turn" if layout == "in turn" else "")
    what = f"{events:,} events ({shape}, files {layout}), {keys:,} keys, with event time"
    return TimedEvents(made_once(name, what, partial(_write, events, keys, shape, layout, seed)), events, keys)


def _write(events: int, keys: int, shape: Shape, layout: Layout, seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    key, ts = (_steady if shape == "steady" else _bursts)(rng, events - 1, keys)
    order = np.argsort(ts + rng.integers(0, DELAY_MS + 1, events - 1), kind="stable")
    table = pa.table(
        {
            "key": np.r_[key[order], 0],
            "ts": np.r_[ts[order], FUTURE_MS],
            "v": rng.integers(0, 1000, events) / 1000,
        }
    )
    (folder / "parquet").mkdir()
    (folder / "csv").mkdir()
    plain = pa.csv.WriteOptions(include_header=False)
    for number in range(PARTITIONS):
        # Dealt from the end, so that the event in the future is in the last file.
        rows = np.arange((events - 1 - (PARTITIONS - 1 - number)) % PARTITIONS, events, PARTITIONS)
        dealt = table.take(pa.array(rows))
        pa.csv.write_csv(dealt, folder / "csv" / f"{number}.csv", plain)
        if layout == "side by side":
            for piece, part in enumerate(_cut(dealt, SLICES)):
                _write_parquet(part, folder / "parquet" / f"{piece:04d}-{number}.parquet", piece * PARTITIONS + number)
    if layout == "in turn":
        for piece, part in enumerate(_cut(table, SLICES * PARTITIONS)):
            _write_parquet(part, folder / "parquet" / f"{piece:04d}.parquet", piece)


def _cut(table: pa.Table, pieces: int) -> list[pa.Table]:
    edges = np.linspace(0, table.num_rows, pieces + 1).astype(int)
    return [table.slice(start, stop - start) for start, stop in itertools.pairwise(edges)]


def _write_parquet(part: pa.Table, path: Path, age: int) -> None:
    pq.write_table(part, path, row_group_size=max(1, -(-part.num_rows // _ROW_GROUPS)))
    os.utime(path, (BEGIN_MS // 1000 + age,) * 2)


def _steady(rng: np.random.Generator, events: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(0, keys, events), BEGIN_MS + rng.integers(0, SPAN_MS, events)


def _bursts(rng: np.random.Generator, events: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    sizes = rng.integers(1, 4, events)
    bursts = int(np.searchsorted(np.cumsum(sizes), events)) + 1
    burst = np.repeat(np.arange(bursts), sizes[:bursts])[:events]
    key = rng.permutation(np.arange(bursts) % keys)[burst]
    begin = rng.integers(0, SPAN_MS - _BURST_MS, bursts)[burst]
    ts = BEGIN_MS + begin + rng.integers(0, _BURST_MS, events)
    while True:
        order = np.lexsort((ts, key))
        exact = np.flatnonzero((np.diff(ts[order]) == GAP_MS) & (np.diff(key[order]) == 0))
        if not len(exact):
            return key, ts
        ts[order[exact + 1]] += 1

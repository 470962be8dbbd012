"""Input for patterns, made once: two CSV files without a header, of key, ts (milliseconds) and kind (0 to 99, uniform).

Events are uniform over half an hour, no two of a key at the same time, and come up to two seconds after their time. There are
two layouts of the same events: `sides/`, two files, each over all of the time, for a source task of Flink reads one file, and
files in no order; `turns/`, files one after another in time, which is how Penstock reads files where order is seen.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from harness.inputs import made_once

PARTITIONS = 2
SLICES = 16
"""Files one after another."""
BEGIN_MS = 1_700_000_040_000
SPAN_MS = 1_800_000
DELAY_MS = 2_000
SLACK_SECONDS = 5
KINDS = 100
_FORMAT = 2


@dataclass(frozen=True, slots=True)
class PatternEvents:
    folder: Path
    events: int
    keys: int

    @property
    def sides(self) -> Path:
        return self.folder / "sides"

    @property
    def turns(self) -> Path:
        return self.folder / "turns"

    def read(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Keys, times and kinds, by key and time."""
        read = pa.csv.ReadOptions(column_names=["key", "ts", "kind"])
        table = pa.concat_tables([pa.csv.read_csv(path, read) for path in sorted(self.sides.glob("*.csv"))])
        key, ts, kind = (table[name].to_numpy() for name in ("key", "ts", "kind"))
        order = np.lexsort((ts, key))
        return key[order], ts[order], kind[order]


def pattern_events_of(events: int, keys: int, *, seed: int = 1) -> PatternEvents:
    """The input with these parameters, made now or before."""
    name, what = f"patterns-{_FORMAT}-{events}-{keys}-{seed}", f"{events:,} events of {keys:,} keys, for patterns"
    return PatternEvents(made_once(name, what, partial(_write, events, keys, seed)), events, keys)


def _write(events: int, keys: int, seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    key, ts = rng.integers(0, keys, events), BEGIN_MS + rng.integers(0, SPAN_MS, events)
    while True:
        order = np.lexsort((ts, key))
        same = np.flatnonzero((np.diff(ts[order]) == 0) & (np.diff(key[order]) == 0))
        if not len(same):
            break
        ts[order[same + 1]] += 1
    order = np.argsort(ts + rng.integers(0, DELAY_MS + 1, events), kind="stable")
    table = pa.table({"key": key[order], "ts": ts[order], "kind": rng.integers(0, KINDS, events)})
    (folder / "sides").mkdir()
    (folder / "turns").mkdir()
    plain = pa.csv.WriteOptions(include_header=False)
    for number in range(PARTITIONS):
        pa.csv.write_csv(table.take(pa.array(np.arange(number, events, PARTITIONS))), folder / "sides" / f"{number}.csv", plain)
    edges = np.linspace(0, events, SLICES + 1).astype(int)
    for number, (start, stop) in enumerate(itertools.pairwise(edges.tolist())):
        path = folder / "turns" / f"{number:04d}.csv"
        pa.csv.write_csv(table.slice(start, stop - start), path, plain)
        os.utime(path, (BEGIN_MS // 1000 + number,) * 2)

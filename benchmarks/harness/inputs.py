"""Input files, made once for given parameters.

Columns: key (int64, uniform), ts (int64, milliseconds, rising), v (float64 in [0, 1)).
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.places import DATA
from harness.progress import say

FILES = 8
ROW_GROUPS = 4
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Events:
    """A folder of Parquet files. With `every=n` only keys that n divides are kept, with all of their events."""

    folder: Path
    events: int
    keys: int
    every: int = 1

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values of all events, in order of the files."""
        table = pa.concat_tables([pq.read_table(path, columns=["key", "v"]) for path in self.files])
        return table["key"].to_numpy(), table["v"].to_numpy()


def events_of(events: int, keys: int, *, files: int = FILES, every: int = 1, seed: int = 1) -> Events:
    """The input with these parameters, made now or before."""
    what = f"{events:,} events, {keys:,} keys" + (f", every {every}th key of them" if every > 1 else "")
    folder = made_once(
        f"events-{_FORMAT}-{events}-{keys}-{files}-{every}-{seed}",
        what,
        lambda building: _write(building, events, keys, files, every, seed),
    )
    kept = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
    return Events(folder, kept, keys, every)


def made_once(name: str, what: str, write: Callable[[Path], None]) -> Path:
    """The input folder of this name; `write` fills it if it is not there. It appears whole or not at all."""
    folder = DATA / name
    if not folder.exists():
        say(f"making input: {what}")
        building = folder.with_name(f".{folder.name}.{os.getpid()}")
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        write(building)
        building.rename(folder)
    return folder


def _write(folder: Path, events: int, keys: int, files: int, every: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.linspace(0, events, files + 1).astype(int)
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        key = rng.integers(0, keys, stop - start)
        table = pa.table({"key": key, "ts": np.arange(start, stop) // 10, "v": rng.random(stop - start)})
        if every > 1:
            table = table.filter(pa.array(key % every == 0))
        pq.write_table(table, folder / f"{number:04d}.parquet", row_group_size=max(1, -(-table.num_rows // ROW_GROUPS)))

"""What windows must hold, computed with numpy from the input files alone; and the outputs of contenders, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from harness.reference import MismatchError, check_close, check_same
from harness.timed_inputs import FUTURE_MS, GAP_MS, TimedEvents

SCHEMA = pa.schema(
    {"key": pa.int64(), "start": pa.int64(), "end": pa.int64(), "count": pa.int64(), "total": pa.float64()},
)


def aligned_windows(data: TimedEvents, size_ms: int, slide_ms: int) -> pa.Table:
    """A record for each key and window of `size_ms` every `slide_ms` with an event, ordered by key and start."""
    key, ts, v = data.read()
    first, panes = int(ts.min()) // slide_ms, size_ms // slide_ms
    many = int(ts.max()) // slide_ms - first + panes  # windows, the earliest of which begin before the first event
    counts, sums = np.zeros(data.keys * many, np.int64), np.zeros(data.keys * many)
    for back in range(panes):
        place = key * many + (ts // slide_ms - first + back)
        counts += np.bincount(place, minlength=len(counts))
        sums += np.bincount(place, weights=v, minlength=len(sums))
    there = np.flatnonzero(counts)
    start = (there % many + first - (panes - 1)) * slide_ms
    return pa.table([there // many, start, start + size_ms, counts[there], sums[there]], schema=SCHEMA)


def session_windows(data: TimedEvents, gap_ms: int = GAP_MS) -> pa.Table:
    """A record for each session, ordered by key and start."""
    key, ts, v = data.read()
    order = np.lexsort((ts, key))
    key, ts, v = key[order], ts[order], v[order]
    first = np.flatnonzero(np.r_[True, (np.diff(key) != 0) | (np.diff(ts) > gap_ms)])
    last = np.r_[first[1:], len(key)] - 1
    return pa.table([key[first], ts[first], ts[last] + gap_ms, last - first + 1, np.add.reduceat(v, first)], schema=SCHEMA)


def check_windows(want: pa.Table, output: pa.Table) -> None:
    """Each window once and no other, with its count and sum; in any order, windows of the event in the future left out.

    As counts are of all events, this also shows that nobody has dropped a record as late.
    """
    output = output.filter(pc.less_equal(output["end"], FUTURE_MS))
    if output.num_rows != want.num_rows:
        have, due = pc.sum(output["count"]).as_py() or 0, pc.sum(want["count"]).as_py()
        raise MismatchError(f"{output.num_rows:,} windows with {have:,} events in them instead of {want.num_rows:,} with {due:,}")
    order = np.lexsort((output["start"].to_numpy(), output["key"].to_numpy()))
    for name in ("key", "start", "end", "count"):
        check_same(name, output[name].to_numpy()[order], want[name].to_numpy())
    check_close("total", output["total"].to_numpy()[order], want["total"].to_numpy())


def read_window_parquet(paths: Sequence[Path], names: Sequence[str] = tuple(SCHEMA.names)) -> pa.Table:
    """Parquet files with these columns in the place of SCHEMA's; times are milliseconds or timestamps."""
    tables = [pq.ParquetFile(path).read(columns=list(names)).select(list(names)) for path in paths]
    return _table(pa.concat_tables(table for table in tables if table.num_rows))


def read_headed_csv(paths: Sequence[Path], names: Sequence[str]) -> pa.Table:
    """CSV files with a header and these columns in the place of SCHEMA's."""
    tables = [pa.csv.read_csv(path).select(list(names)) for path in paths if path.stat().st_size]
    return _table(pa.concat_tables(table for table in tables if table.num_rows))


def read_window_csv(paths: Sequence[Path]) -> pa.Table:
    """CSV files without a header, with timestamps in UTC."""
    types = {**{name: SCHEMA.field(name).type for name in SCHEMA.names}, "start": pa.timestamp("ms"), "end": pa.timestamp("ms")}
    read = pa.csv.ReadOptions(column_names=SCHEMA.names)
    convert = pa.csv.ConvertOptions(column_types=types)
    tables = [pa.csv.read_csv(path, read, convert_options=convert) for path in paths if path.stat().st_size]
    return _table(pa.concat_tables(tables))


def _table(table: pa.Table) -> pa.Table:
    columns = [
        pc.cast(column, pa.timestamp("ms"), safe=False).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=SCHEMA.names).cast(SCHEMA)

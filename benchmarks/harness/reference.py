"""What the outputs must be, computed with numpy from the input files alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq


class MismatchError(Exception):
    """An output is not what it must be."""


def check_running_sums(keys: np.ndarray, values: np.ndarray, output: pa.Table) -> None:
    """Checks (key, count, sum) records, one for each event, in any order.

    For every key the counts are 1..n, each once; the last sum is the sum of the key's values; and the steps between one sum and
    the next are the key's values, each once (so no event was counted twice in the place of another).
    """
    if output.num_rows != len(keys):
        raise MismatchError(f"{output.num_rows:,} output records for {len(keys):,} events")
    out_key, out_count, out_sum = (output[name].to_numpy() for name in ("key", "count", "sum"))
    order = np.lexsort((out_count, out_key))
    out_key, out_count, out_sum = out_key[order], out_count[order], out_sum[order]
    by_key = np.argsort(keys, kind="stable")
    want_key, want_value = keys[by_key], values[by_key]
    check_same("keys", out_key, want_key)
    first = np.r_[True, want_key[1:] != want_key[:-1]] if len(want_key) else np.zeros(0, bool)
    starts = np.flatnonzero(first)
    sizes = np.diff(np.r_[starts, len(want_key)])
    check_same("counts", out_count, np.arange(len(want_key)) - np.repeat(starts, sizes) + 1)
    last = np.r_[starts[1:], len(want_key)] - 1
    check_close("last sums", out_sum[last], np.add.reduceat(want_value, starts) if len(starts) else want_value)
    steps = np.where(first, out_sum, out_sum - np.r_[0.0, out_sum[:-1]])
    check_close("values added", steps[np.lexsort((steps, out_key))], want_value[np.lexsort((want_value, want_key))])


def check_totals(keys: np.ndarray, values: np.ndarray, output: pa.Table) -> None:
    """Checks final (key, count, sum) records, one for each key."""
    want_key, inverse = np.unique(keys, return_inverse=True)
    output = output.sort_by("key")
    check_same("keys", output["key"].to_numpy(), want_key)
    check_same("counts", output["count"].to_numpy(), np.bincount(inverse, minlength=len(want_key)))
    check_close("sums", output["sum"].to_numpy(), np.bincount(inverse, weights=values, minlength=len(want_key)))


def check_counts(keys: np.ndarray, output: pa.Table) -> None:
    """Checks (key, count) records, one for each event, in any order: the counts of a key are 1..n, each once."""
    zeros = np.zeros(len(keys))
    sums = pa.array(np.zeros(output.num_rows))
    check_running_sums(keys, zeros, output.select(["key", "count"]).append_column("sum", sums))


def check_last_counts(keys: np.ndarray, output: pa.Table) -> None:
    """Checks (key, count) updates, of which the highest count of a key is final."""
    last = output.group_by("key").aggregate([("count", "max")]).sort_by("key")
    want_key, want_count = np.unique(keys, return_counts=True)
    check_same("keys", last["key"].to_numpy(), want_key)
    check_same("counts", last["count_max"].to_numpy(), want_count)


def read_parquet_files(paths: Sequence[Path]) -> pa.Table:
    """Several Parquet files as one table of (key, count, sum)."""
    schema = pa.schema({"key": pa.int64(), "count": pa.int64(), "sum": pa.float64()})
    tables = [pq.ParquetFile(path).read(columns=schema.names) for path in paths]
    return pa.concat_tables([table.cast(schema) for table in tables]) if tables else schema.empty_table()


def read_csv_files(paths: Sequence[Path]) -> pa.Table:
    """Several files of lines `key,count,sum` without a header as one table."""
    names = ["key", "count", "sum"]
    types = {"key": pa.int64(), "count": pa.int64(), "sum": pa.float64()}
    tables = [
        pa.csv.read_csv(
            path,
            read_options=pa.csv.ReadOptions(column_names=names),
            convert_options=pa.csv.ConvertOptions(column_types=types),
        )
        for path in paths
        if path.stat().st_size
    ]
    return pa.concat_tables(tables) if tables else pa.schema(types).empty_table()


def check_same(what: str, have: np.ndarray, want: np.ndarray) -> None:
    if len(have) != len(want):
        raise MismatchError(f"{what}: {len(have):,} instead of {len(want):,}")
    wrong = np.flatnonzero(have != want)
    if len(wrong):
        raise MismatchError(f"{what}: {len(wrong):,} differ, the first is {have[wrong[0]]} instead of {want[wrong[0]]}")


def check_close(what: str, have: np.ndarray, want: np.ndarray) -> None:
    wrong = np.flatnonzero(~np.isclose(have, want, rtol=1e-9, atol=1e-7))
    if len(wrong):
        raise MismatchError(f"{what}: {len(wrong):,} differ, the first is {have[wrong[0]]} instead of {want[wrong[0]]}")

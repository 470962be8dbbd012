"""Windows on real Spark, three ways: straight, killed and recovered, stopped and restored at another parallelism.

Each way every result and every late record is what a naive reference says, once.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from penstock import EpochRecord
from penstock.compile.rewrites import rewrite
from penstock.connectors.files.reading.published import read_rows
from tests.spark.launching import launch
from tests.spark.programs import windows as job
from tests.windows.naive import Case, Contents, Naive, Pair

pytestmark = pytest.mark.spark

END = 2**63 - 1
COLUMNS = ("kind", "key", "window_start", "window_end", "count", "total", "first", "last", "number")

TUMBLING = Case(windows=("tumbling", job.TUMBLING_MS, job.TUMBLING_MS, 0), lateness=job.LATENESS_MS)
SLIDING = Case(windows=("sliding", job.SLIDING_MS, job.SLIDE_MS, 0), lateness=job.LATENESS_MS)
SESSIONS = Case(windows=("session", job.GAP_MS), lateness=job.LATENESS_MS)
BRIEF = Case(windows=("session", job.GAP_MS))


class NaivePortions(Naive):
    """What `Portions` and `Numbered` make of a window."""

    def __init__(self) -> None:
        super().__init__(TUMBLING, list)
        self.of_window: Counter[tuple[Any, Pair]] = Counter()

    def on_record(self, key: Any, window: Pair, contents: Contents, time: int) -> None:
        over = self.last(window) <= self.watermark
        contents.count += 0 if over else contents.records[-1][0][0]
        if over or contents.count >= job.PORTION:
            contents.count = 0
            self.fire(key, window, contents)

    def fire(self, key: Any, window: Pair, contents: Contents) -> None:
        if contents.records:
            self.of_window[key, window] += 1
            amounts = [amount for (amount, _, _), _ in contents.records]
            self.out.append((key, *window, len(amounts), sum(amounts), None, None, self.of_window[key, window]))
            contents.records = []


@cache
def expected() -> tuple[Counter[Any], Counter[Any]]:
    """Results and late records, by number, of all kinds: every record in order, and now and then the watermark."""

    def computed(values: list[tuple[int, int, int]]) -> tuple[int, int, int, int]:
        times = sorted((time, n) for _, n, time in values)
        return len(values), sum(amount for amount, _, _ in values), times[0][1], times[-1][1]

    cases = {"tumbling": TUMBLING, "sliding": SLIDING, "sessions": SESSIONS, "brief": BRIEF}
    naive = {kind: Naive(case, computed) for kind, case in cases.items()}
    naive["portions"] = NaivePortions()
    results: Counter[Any] = Counter()
    late: Counter[Any] = Counter()
    rows = job.events(np.arange(job.EVENTS, dtype=np.int64)).to_pylist()
    for kind, reference in naive.items():
        latest = -END
        for row in rows:
            before = len(reference.late)
            reference.record(row["key"], (row["amount"], row["n"], row["time"]), row["time"])
            latest = max(latest, row["time"])
            for where in kinds(kind):
                late[where, row["n"]] += len(reference.late) - before
            if row["n"] % 25 == 0:
                reference.to_watermark(latest - job.SLACK_MS - 1)
        reference.to_watermark(END)
        for out in reference.out:
            found = out if kind == "portions" else (*out[0][:3], *out[0][3], None)
            results.update((where, *found) for where in kinds(kind))
    return results, +late


def kinds(kind: str) -> tuple[str, ...]:
    """Tumbling and sliding windows, and sessions that nothing brings back, are computed both ways."""
    return (f"{kind}-columns", f"{kind}-records") if kind in ("tumbling", "sliding", "brief") else (kind,)


def check_exact(folder: Path) -> None:
    results, late = expected()
    rows = list(read_rows(folder / "results"))
    found = Counter(tuple(row.get(name) for name in COLUMNS) for row in rows)
    assert found == results, f"lost {(results - found).most_common(5)}, made up {(found - results).most_common(5)}"
    numbered = Counter((row["key"], row["of_key"]) for row in rows if row["kind"] == "portions")
    many = Counter(key for key, _ in numbered.elements())
    assert numbered == Counter((key, number) for key, most in many.items() for number in range(1, most + 1))
    aside = Counter((row["kind"], row["n"]) for row in read_rows(folder / "late"))
    assert aside == late, f"lost {(late - aside).most_common(5)}, made up {(aside - late).most_common(5)}"


def test_the_program_is_about_something(tmp_path: Path) -> None:
    """Windows are updated by late records, records are too late, sessions hold several records, columns are used."""
    results, late = expected()
    windows = Counter(row[:4] for row in results.elements())
    for kind in ("tumbling-columns", "sliding-columns", "sessions", "portions"):
        assert sum(times > 1 for window, times in windows.items() if window[0] == kind) > 50
        assert sum(n for (where, _), n in late.items() if where == kind) >= 15
    assert sum(row[4] > 1 for row in results if row[0] == "sessions") > 50
    program = job.program(tmp_path).graph
    rewritten = rewrite(program)
    over_columns = {node.step for node in program if type(rewritten.nodes[node.step].definition) is not type(node.definition)}
    assert over_columns == {"tumbling-columns", "sliding-columns", "brief-columns"}


def test_straight(spark: SparkSession, tmp_path: Path) -> None:
    result = job.program(tmp_path, spark=spark).execute()
    assert result.finished
    assert result.epochs > 10
    check_exact(tmp_path)


def test_killed_and_recovered(tmp_path: Path) -> None:
    """A worker dies in a task, then the driver between two epochs' commits; the next driver dies before one; the third ends."""
    launch("windows", tmp_path, str(tmp_path), points="task:frame=kill@9;task:delta=kill@3;manifest:after=kill@6", killed=True)
    launch("windows", tmp_path, str(tmp_path), points="task:prepare=kill@2;epoch:ran=kill@5", killed=True)
    assert "finished=True" in launch("windows", tmp_path, str(tmp_path))
    check_exact(tmp_path)


def test_stopped_and_restored_at_another_parallelism(spark: SparkSession, tmp_path: Path) -> None:
    for parallelism in (1, 3):
        left = iter(range(3))

        def stop(record: EpochRecord, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                signal.raise_signal(signal.SIGTERM)

        result = job.program(tmp_path, spark=spark, parallelism=parallelism).execute(listener=stop)
        assert result.stopped
        assert not result.finished
    assert job.program(tmp_path, spark=spark, parallelism=2).execute().finished
    check_exact(tmp_path)

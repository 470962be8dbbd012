"""The rows of joins over columns in snapshots: shown, found, compared, grouped anew, resumed from; and epochs replayed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock import CollectSink, DataStream, StreamEnvironment, Watermarks
from penstock.errors import StateError
from penstock.snapshots import diff, read, replay
from penstock.snapshots.edit.regrouping import regroup
from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.storage import open_storage
from penstock.testing import run_inline
from tests.joins.naive import ms

LEFT = [{"k": f"k{n % 7}", "t": n * 10, "a": n} for n in range(120)]
RIGHT = [{"k": f"k{n % 5}", "t": n * 10 + 3, "b": n / 2, "note": None if n % 3 else f"n{n}"} for n in range(120)]


def joined(parallelism: int = 2, **settings: Any) -> DataStream[Any]:
    env = StreamEnvironment("joins", parallelism=parallelism, max_records_per_epoch=40, first_records_per_epoch=40, **settings)
    watermarks: Watermarks[Any] = Watermarks.bounded(slack=ms(20), timestamp="t")
    left, right = (
        env.from_collection(rows, watermarks=watermarks, name=name).key_by("k")
        for rows, name in ((LEFT, "left"), (RIGHT, "right"))
    )
    near = left.interval_join(right).between(ms(-100), ms(150)).full()
    return near.select(left={"k": "lk", "a": "a"}, right={"k": "rk", "b": "b", "note": "note"}, name="join")


def counted(rows: list[Any]) -> Counter[str]:
    return Counter(map(repr, rows))


@pytest.fixture(scope="module")
def whole() -> Counter[str]:
    return counted(run_inline(joined()))


def test_a_savepoint_is_whole(tmp_path: Path, whole: Counter[str]) -> None:
    job, saved = str(tmp_path / "job"), str(tmp_path / "savepoint")
    first = run_inline(joined(max_parallelism=16), storage=job, epochs=3)
    make_savepoint(open_storage(job), to=saved)
    assert diff(saved, job).same
    with read(saved) as snapshot:
        state = snapshot.state("join", "left")
        rows = list(state.windows())
        assert {row["key"] for row in rows} <= {f"k{n}" for n in range(7)}
        assert all(set(record) <= {"k", "a", "$met"} for row in rows for record in row["records"])
        assert sum(len(row["records"]) for row in rows) > 5
        assert state.find(rows[0]["key"]).num_rows >= 1
        with pytest.raises(StateError, match="keeps keys together"):
            state.get(rows[0]["key"])
        table = state.to_arrow()
        assert table.column_names[:4] == ["time", "level", "rows", "keys"]
    rest = run_inline(joined(3, max_parallelism=16), storage=str(tmp_path / "other"), restore_from=saved)
    assert counted([*first, *rest]) == whole


def test_rows_are_grouped_anew(tmp_path: Path, whole: Counter[str]) -> None:
    job, saved = str(tmp_path / "job"), str(tmp_path / "savepoint")
    first = run_inline(joined(max_parallelism=16), storage=job, epochs=3)
    regroup(job, 50, saved)
    assert diff(saved, job).same
    rest = run_inline(joined(3), storage=str(tmp_path / "other"), restore_from=saved)
    assert counted([*first, *rest]) == whole


def test_versions_in_a_savepoint(tmp_path: Path) -> None:
    def valued(parallelism: int, **settings: Any) -> DataStream[Any]:
        env = StreamEnvironment(
            "joins", parallelism=parallelism, max_records_per_epoch=40, first_records_per_epoch=40, **settings
        )
        watermarks: Watermarks[Any] = Watermarks.bounded(slack=ms(20), timestamp="t")
        sides = (("left", LEFT), ("right", RIGHT))
        left, right = (env.from_collection(rows, watermarks=watermarks, name=name).key_by("k") for name, rows in sides)
        return left.temporal_join(right).left().select(left=["k", "a"], right=["b", "note"], name="join")

    job, saved = str(tmp_path / "job"), str(tmp_path / "savepoint")
    first = run_inline(valued(2), storage=job, epochs=3)
    regroup(job, 50, saved)
    assert diff(saved, job).same
    with read(saved) as snapshot:
        versions = Counter(row["key"] for row in snapshot.state("join", "versions").windows())
        assert set(versions) == {f"k{n}" for n in range(5)}
    rest = run_inline(valued(3), storage=str(tmp_path / "other"), restore_from=saved)
    assert counted([*first, *rest]) == counted(run_inline(valued(1)))


def test_an_epoch_is_replayed(tmp_path: Path) -> None:
    job = str(tmp_path / "job")
    run_inline(joined(keep=20), storage=job, epochs=4)
    again = joined(keep=20)
    again.sink_to(CollectSink())
    found = replay(job, "latest", step="join", env=again._env)
    assert found.reproduced
    assert found.verdict.entries > 0


def test_what_is_over_is_not_kept(tmp_path: Path) -> None:
    """The state of a join does not grow with what has been joined."""
    rows = [{"k": n % 3, "t": n * 1_000, "v": n} for n in range(200)]
    env = StreamEnvironment("joins", executor="inline", parallelism=1)
    left, right = (
        env.from_collection(rows, watermarks=Watermarks.monotonous(timestamp="t"), name=name).key_by("k") for name in ("l", "r")
    )
    left.interval_join(right).between(-1, 1).select(left=["v"], right={"v": "w"}, name="join").print()
    result = env.execute(max_records_per_epoch=20, first_records_per_epoch=20)
    assert result.epochs >= 20
    assert result.counters["join"]["rows_left"] < 100

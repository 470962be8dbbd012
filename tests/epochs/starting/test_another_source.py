"""A finished job whose program gets another source: it is read, and what was finished stays so."""

from __future__ import annotations

from pathlib import Path

from penstock import FileSink, JobResult, StreamEnvironment, TumblingWindows, Watermarks
from penstock.connectors.files.reading.published import read_rows


def run(folder: Path, *sources: tuple[str, list[int]], windows: bool = False) -> JobResult:
    """Counts by the last digit: all together, or in windows of ten milliseconds."""
    env = StreamEnvironment("grows", executor="inline", parallelism=2, storage=str(folder / "storage"))
    marks: Watermarks[int] = Watermarks.monotonous(timestamp=lambda n: n)
    first, *others = [env.from_collection(values, name=name, watermarks=marks) for name, values in sources]
    keyed = first.union(*others).map(lambda n: (n % 2, 1)).key_by(0)
    counted = keyed.window(TumblingWindows(milliseconds=10)).sum(1, name="counts") if windows else keyed.sum(1, name="counts")
    counted.sink_to(FileSink(str(folder / "out")), name="out")
    return env.execute()


def rows(folder: Path) -> list[tuple[int, int]]:
    return sorted(tuple(row.values())[-2:] for row in read_rows(str(folder / "out")))


ONE = ("one", list(range(5)))
TWO = ("two", list(range(100, 104)))


def test_it_is_read(tmp_path: Path) -> None:
    assert run(tmp_path, ONE).finished
    again = run(tmp_path, ONE, TWO)
    assert again.finished
    assert again.records_in == 4, "the first source has ended, and is not read again"
    assert rows(tmp_path) == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 1), (1, 2), (1, 3), (1, 4)]
    assert run(tmp_path, ONE, TWO).records_in == 0


def test_its_records_are_not_late(tmp_path: Path) -> None:
    """The end of time that the first source came to is taken back."""
    assert run(tmp_path, ONE, windows=True).finished
    run(tmp_path, ONE, TWO, windows=True)
    assert rows(tmp_path) == [(0, 2), (0, 3), (1, 2), (1, 2)]


def test_a_finished_job_without_another_source_stays_finished(tmp_path: Path) -> None:
    assert run(tmp_path, ONE, TWO).finished
    again = run(tmp_path, ONE, TWO)
    assert again.finished
    assert again.epochs == 0

"""Files that are gone from a job's storage: it does not start, says which, and falls back only when told to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock import FileSink, GeneratorSource, StreamEnvironment
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import CorruptFileError, RepeatedOutputError
from penstock.failpoints import InjectedError, arm

COUNT = 100


def run(folder: Path, *, fall_back: bool = False) -> None:
    env = StreamEnvironment(
        "missing",
        executor="inline",
        parallelism=1,
        storage=str(folder / "storage"),
        max_records_per_epoch=10,
        first_records_per_epoch=10,
        fall_back=fall_back,
        restart=NO_RESTART,
    )
    numbers = env.from_source(GeneratorSource(int, count=COUNT, partitions=1), name="numbers")
    numbers.map(lambda n: (n % 7, n)).key_by(0).sum(1, name="sums").sink_to(FileSink(str(folder / "out")), name="out")
    env.execute()


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A job that died after some epochs."""
    arm("epoch:ran=raise@6")
    try:
        with pytest.raises(InjectedError):
            run(tmp_path)
    finally:
        arm("")
    return tmp_path


def totals(folder: Path) -> dict[int, int]:
    found: dict[int, int] = {}
    for row in read_rows(str(folder / "out")):
        key, value = row.values()
        found[key] = max(value, found.get(key, 0))
    return found


EXPECTED = {key: sum(range(key, COUNT, 7)) for key in range(7)}


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_file_of_state(stopped: Path, damage: str) -> None:
    newest = sorted((stopped / "storage" / "state").rglob("*.delta"))[-2]  # the last one is of the epoch that failed
    if damage == "missing":
        newest.unlink()
    else:
        newest.write_bytes(newest.read_bytes()[:-1])
    epochs = sorted(path.name for path in (stopped / "storage" / "epochs").iterdir())
    for _ in range(3):
        with pytest.raises(CorruptFileError, match=f"(?s){newest.name}.*--fall-back"):
            run(stopped)
    assert sorted(path.name for path in (stopped / "storage" / "epochs").iterdir()) == epochs, "nothing was committed"
    run(stopped, fall_back=True)
    assert totals(stopped) == EXPECTED
    assert len(list(read_rows(str(stopped / "out")))) == COUNT


def test_a_bit_in_a_file_of_state(stopped: Path) -> None:
    """It is noticed when it is read: at once, if the job is to fall back."""
    newest = sorted((stopped / "storage" / "state").rglob("*.delta"))[-2]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    run(stopped, fall_back=True)
    assert totals(stopped) == EXPECTED
    assert len(list(read_rows(str(stopped / "out")))) == COUNT


def test_all_epochs(stopped: Path) -> None:
    """It is no new job: its output is there."""
    before = list(read_rows(str(stopped / "out")))
    shutil.rmtree(stopped / "storage" / "epochs")
    with pytest.raises(RepeatedOutputError, match="the job's epochs are gone: its sinks know epoch 6"):
        run(stopped)
    assert list(read_rows(str(stopped / "out"))) == before
    run(stopped, fall_back=True)
    assert totals(stopped) == EXPECTED
    assert len(list(read_rows(str(stopped / "out")))) == COUNT

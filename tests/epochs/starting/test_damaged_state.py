"""Bytes of a state file that change: noticed before a take-over is committed, and told with the epoch to fall back to."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock import FileSink, GeneratorSource, KeyedContext, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import CorruptFileError
from penstock.executors.inline import InlineExecutor
from penstock.ids import Epoch
from penstock.jobs.manifest import Manifest, load_manifest
from penstock.runtime import committed
from penstock.runtime.messages import EpochOrder, TaskReport
from penstock.storage import open_storage
from penstock.testing.running import close_stores
from tests.laws.trying import Crash, Interrupted, crash

COUNT = 200
KEYS = 9


class Count(KeyedProcessFunction[int, int, dict[str, int]]):
    seen = ValueState(int, default=0)

    def process(self, value: int, ctx: KeyedContext[int]) -> Any:
        self.seen.update(self.seen.value + 1)
        yield {"key": ctx.key, "number": self.seen.value}


def run(folder: Path, executor: InlineExecutor | None = None, **settings: Any) -> None:
    env = StreamEnvironment(
        "damaged",
        executor="inline",
        parallelism=2,
        storage=str(folder / "storage"),
        local_dir=str(folder / "local"),
        max_records_per_epoch=10,
        first_records_per_epoch=10,
        **{"compact_after": 100, "keep": 50, **settings},
    )
    numbers = env.from_source(GeneratorSource(int, count=COUNT, partitions=1), name="numbers")
    counted = numbers.key_by(lambda n: n % KEYS).process(Count(), name="count")
    counted.sink_to(FileSink(str(folder / "out")), name="out")
    env.execute(executor=executor)


def forget(folder: Path) -> None:
    """As another host has none of it."""
    close_stores(str(folder / "local"))
    shutil.rmtree(folder / "local", ignore_errors=True)
    committed._recent.clear()
    committed._layers.clear()


def check(folder: Path) -> None:
    rows = sorted((row["key"], row["number"]) for row in read_rows(str(folder / "out")))
    assert rows == sorted((key, number + 1) for key in range(KEYS) for number in range(len(range(key, COUNT, KEYS))))


def newest(folder: Path) -> Manifest:
    path = max((folder / "storage" / "epochs").glob("*.json"))
    return load_manifest(open_storage(folder / "storage"), Epoch(int(path.stem)))


def state_file(folder: Path, number: int) -> Path:
    """A file of the newest epoch's state, counted from its end."""
    chain = next(chain for stage in newest(folder).state.chains for chain in stage if chain)
    return folder / "storage" / chain[number].name


def damage(path: Path, *, unseen: bool = False) -> None:
    """A bit in the middle. `unseen`: as a disk does it, without a trace in the listing."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    if unseen:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def last_without(folder: Path, path: Path) -> int:
    """The newest epoch that does not name a file."""
    name = str(path.relative_to(folder / "storage"))
    manifests = (folder / "storage" / "epochs").glob("*.json")
    return max(int(manifest.stem) for manifest in manifests if name not in manifest.read_text())


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(9, crash))
    committed._recent.clear()
    return tmp_path


def refused(folder: Path, path: Path) -> None:
    epochs = sorted(os.listdir(folder / "storage" / "epochs"))
    whole = last_without(folder, path)
    wanted = f"(?s){path.name}.*epoch {newest(folder).epoch} .*resume from epoch {whole}, .*--fall-back"
    for _ in range(2):
        with pytest.raises(CorruptFileError, match=wanted):
            run(folder)
    assert sorted(os.listdir(folder / "storage" / "epochs")) == epochs, "nothing was committed"


@pytest.mark.parametrize("number", [-1, 3, 0])
@pytest.mark.parametrize("fresh", [True, False], ids=["a host without stores", "the same host"])
def test_it_is_refused_before_anything_is_committed(stopped: Path, number: int, fresh: bool) -> None:
    if fresh:
        forget(stopped)
    path = state_file(stopped, number)
    damage(path)
    refused(stopped, path)
    run(stopped, fall_back=True)
    check(stopped)


@pytest.mark.parametrize("number", [-1, 3])
def test_a_host_without_stores_finds_what_the_listing_does_not_show(stopped: Path, number: int) -> None:
    forget(stopped)
    path = state_file(stopped, number)
    damage(path, unseen=True)
    refused(stopped, path)
    run(stopped, fall_back=True)
    check(stopped)


def test_a_host_with_stores_reads_the_files_that_are_new_to_it(stopped: Path) -> None:
    path = state_file(stopped, -1)  # the next epoch would have applied it
    damage(path, unseen=True)
    refused(stopped, path)


def test_a_host_with_stores_reads_nothing_else(stopped: Path) -> None:
    damage(state_file(stopped, 0), unseen=True)
    run(stopped)
    check(stopped)


def test_a_start_from_an_earlier_epoch_is_checked_too(stopped: Path) -> None:
    forget(stopped)
    path = state_file(stopped, 2)
    damage(path)
    epochs = sorted(os.listdir(stopped / "storage" / "epochs"))
    with pytest.raises(CorruptFileError, match=path.name):
        run(stopped, restore_from=f"@{newest(stopped).epoch - 1}")
    assert sorted(os.listdir(stopped / "storage" / "epochs")) == epochs


def test_a_file_that_is_damaged_while_the_job_runs(tmp_path: Path) -> None:
    """Epochs are committed on top, until a task has to read the file."""
    damaged: list[Path] = []

    def spoil() -> None:
        damaged.append(state_file(tmp_path, -1))
        damage(damaged[0], unseen=True)

    class Spoiling(Interrupted):
        def run(self, order: EpochOrder) -> list[TaskReport]:
            if damaged and order.epoch == newest_when_spoilt + 4:
                forget(tmp_path)  # a worker is started anew, on another host
            return super().run(order)

    newest_when_spoilt = 6
    with pytest.raises(CorruptFileError) as caught:
        run(tmp_path, Spoiling(newest_when_spoilt, spoil))
    (path,) = damaged
    whole = last_without(tmp_path, path)
    assert newest(tmp_path).epoch > whole + 1, "epochs were committed on top"
    assert re.search(f"(?s){path.name}.*resume from epoch {whole}, .*--fall-back", str(caught.value))
    refused(tmp_path, path)
    run(tmp_path, fall_back=True)
    check(tmp_path)


def test_a_file_that_compaction_finds_damaged(tmp_path: Path) -> None:
    """Going on would only lose the epochs that are whole, one after another."""
    damaged: list[Path] = []

    def spoil() -> None:
        damaged.append(state_file(tmp_path, 2))
        damage(damaged[0], unseen=True)

    with pytest.raises(CorruptFileError) as caught:
        run(tmp_path, Interrupted(6, spoil), compact_after=8)
    whole = last_without(tmp_path, damaged[0])
    assert re.search(f"(?s){damaged[0].name}.*resume from epoch {whole}, .*--fall-back", str(caught.value))
    forget(tmp_path)
    run(tmp_path, fall_back=True)
    check(tmp_path)


def test_no_epoch_is_whole(stopped: Path) -> None:
    path = state_file(stopped, 0)
    damage(path)
    for manifest in (stopped / "storage" / "epochs").iterdir():
        if path.name not in manifest.read_text():
            manifest.unlink()
    with pytest.raises(CorruptFileError, match=f"(?s){path.name}.*no epoch that is kept is whole"):
        run(stopped)
    with pytest.raises(CorruptFileError, match=r"no epoch of .* is whole"):
        run(stopped, fall_back=True)

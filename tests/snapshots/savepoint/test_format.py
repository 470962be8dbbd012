"""The form of a savepoint: what is written is read; what is damaged, of another one, or of the future is refused by name."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptFileError, NotFoundError, StateError
from penstock.ids import MIN_WATERMARK, Epoch, JobId
from penstock.jobs.manifest import Restored, SourceState, StateInfo
from penstock.snapshots.savepoint import state_file
from penstock.snapshots.savepoint.format import (
    SavedJob,
    SavepointInfo,
    SavepointWriter,
    StateWriter,
    encode_info,
    read_info,
    read_state,
)
from penstock.snapshots.savepoint.state_file import StateFile, open_state
from penstock.snapshots.view.content import state_of
from penstock.state.encoding.codecs import codec_for
from penstock.state.encoding.keys import encode_key
from penstock.state.entries.kinds import kinds
from penstock.state.entries.store_keys import sortable_time
from penstock.state.key_groups import NEW_JOBS, KeyGroups
from penstock.storage import LocalStorage

Groups = dict[int, dict[bytes, bytes]]

COUNT = StateInfo("count-it", "count", "value", schema="int", key_schema="str")
JOB = SavedJob(JobId("a" * 32), "counting", "file:///somewhere")


def entry(word: str, number: int) -> tuple[bytes, bytes]:
    return encode_key(word), codec_for(int).encode(number)


def write(storage: LocalStorage, contents: list[tuple[StateInfo, Groups]], pieces: int = 1000, **said: Any) -> SavepointInfo:
    with SavepointWriter(storage, key_groups=KeyGroups(16, NEW_JOBS)) as savepoint:
        for info, groups in contents:
            writer = savepoint.state(info)
            for group, entries in sorted(groups.items()):
                ordered = sorted(entries.items())
                for start in range(0, len(ordered), pieces):
                    part = ordered[start : start + pieces]
                    writer.group(group, [key for key, _ in part], [value for _, value in part])
        return savepoint.finish(job=JOB, epoch=Epoch(7), **said)


def read(storage: LocalStorage, files: list[StateFile], groups: range | None = None) -> Groups:
    found: Groups = {}
    for file in files:
        for group, keys, values in read_state(storage, file, groups):
            assert keys == sorted(set(keys))
            found.setdefault(group, {}).update(zip(keys, values, strict=True))
    return found


words = st.dictionaries(st.text(max_size=5), st.integers(-(2**62), 2**62), max_size=30)
grouped = st.dictionaries(st.integers(0, 15), words.map(lambda d: dict(entry(w, n) for w, n in d.items())), max_size=6)
_names = iter(range(10**9))


@given(grouped, st.integers(1, 9), st.integers(1, 40), st.integers(0, 15), st.integers(0, 15))
def test_what_is_written_is_read(tmp_path: Path, groups: Groups, pieces: int, at_a_time: int, lo: int, hi: int) -> None:
    storage = LocalStorage(str(tmp_path / str(next(_names))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_file, "AT_A_TIME", at_a_time)
        made = write(storage, [(COUNT, groups)], pieces)
    info = read_info(storage)
    assert info == made
    (state,) = info.states
    kept = {group: entries for group, entries in groups.items() if entries}
    assert read(storage, state.files) == kept
    assert read(storage, state.files, range(lo, hi)) == {group: kept[group] for group in kept if lo <= group < hi}
    assert state.rows == sum(map(len, kept.values()))
    reader = open_state(storage, state.files[0])
    assert [row.group for row in reader.contents.groups] == sorted(kept)  # one row group for each key group that has entries
    reader.verify()


def test_the_information(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    sources = {"numbers": SourceState(position={"next": 5}, clocks={"0": 7})}
    parent = Restored("file:///before", "b" * 32, Epoch(3), Epoch(4))
    made = write(storage, [], sources=sources, watermarks={"numbers": 7}, parent=parent, program="abc", processing_time=99)
    info = read_info(storage)
    assert info == made
    assert (info.job, info.epoch, info.max_parallelism, info.parent, info.program) == (JOB, 7, 16, parent, "abc")
    assert (info.sources, info.watermarks, info.processing_time) == (sources, {"numbers": 7}, 99)
    assert (tmp_path / "savepoint.json").read_text().splitlines()[2] == '  "savepoint": {'  # for people
    with pytest.raises(StateError, match="no step 'count-it' has state here"):
        state_of(info, "count-it", "count")


def test_a_copy_is_a_savepoint(tmp_path: Path) -> None:
    made = write(LocalStorage(str(tmp_path / "a")), [(COUNT, {3: dict([entry("x", 1)])})])
    shutil.copytree(tmp_path / "a", tmp_path / "b" / "c")
    shutil.rmtree(tmp_path / "a")
    copy = LocalStorage(str(tmp_path / "b" / "c"))
    info = read_info(copy)
    assert (info.uri, msgspec.structs.replace(info, uri="")) == (copy.uri, msgspec.structs.replace(made, uri=""))
    assert read(copy, info.states[0].files) == {3: dict([entry("x", 1)])}
    assert str(tmp_path) not in (tmp_path / "b" / "c" / "savepoint.json").read_text()


def test_anything_that_reads_parquet_reads_it(tmp_path: Path) -> None:
    made = write(LocalStorage(str(tmp_path)), [(COUNT, {3: dict([entry("x", 1), entry("y", 2)]), 5: dict([entry("z", 3)])})])
    file = tmp_path / made.states[0].files[0].path
    assert file.name == "1-count-it-count.parquet"
    found = duckdb.connect().execute(f"select key_group, key, value from '{file}' order by key").fetchall()
    assert found == [(3, "x", 1), (3, "y", 2), (5, "z", 3)]


def test_when_something_is_due_is_learnt_from_the_keys(tmp_path: Path) -> None:
    timers = StateInfo("alarm", "timers:event", "timers")
    chunked = [StateInfo("hourly", kind, kind) for kind in kinds() if kinds()[kind].many_keys]
    with SavepointWriter(LocalStorage(str(tmp_path)), key_groups=KeyGroups(16, NEW_JOBS)) as savepoint:
        writer = savepoint.state(timers)
        writer.group(1, [sortable_time(50) + encode_key("a"), sortable_time(60) + encode_key("a")], [b"", b""])
        writer.group(2, [sortable_time(-7) + encode_key("b")], [b""])
        savepoint.state(StateInfo("other", "timers:event", "timers"))
        savepoint.state(timers, next_due=-100).group(1, [sortable_time(50) + encode_key("a")], [b""])
        savepoint.state(chunked[0])
        made = savepoint.finish(job=JOB, epoch=Epoch(1))
    assert [state.next_due for state in made.states] == [-7, None, -100, None]
    for number, info in enumerate(chunked):
        writer = StateWriter(
            LocalStorage(str(tmp_path / "other")), f"state/{number}.parquet", "x", 1, info, KeyGroups(16, NEW_JOBS)
        )
        writer._learn(sortable_time(50))
        assert writer.next_due == MIN_WATERMARK
        writer.abandon(StateError("enough"))


@pytest.mark.parametrize(
    ("calls", "what"),
    [
        ([(1, "ba")], "not sorted"),
        ([(1, "aa")], "not sorted"),
        ([(1, "b"), (1, "a")], "not sorted"),
        ([(2, "a"), (1, "b")], "after key group 2"),
    ],
)
def test_disorder_is_refused(tmp_path: Path, calls: list[tuple[int, str]], what: str) -> None:
    storage = LocalStorage(str(tmp_path))
    with pytest.raises(StateError, match=what), SavepointWriter(storage, key_groups=KeyGroups(16, NEW_JOBS)) as savepoint:
        writer = savepoint.state(COUNT)
        for group, letters in calls:
            entries = [entry(letter, 1) for letter in letters]
            writer.group(group, [key for key, _ in entries], [value for _, value in entries])
    assert not list(storage.list())


# --- damage ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def whole(tmp_path: Path) -> tuple[LocalStorage, SavepointInfo]:
    storage = LocalStorage(str(tmp_path / "whole"))
    groups = {group: dict(entry(f"w{number}", number) for number in range(20)) for group in (1, 4, 5)}
    return storage, write(storage, [(COUNT, groups), (msgspec.structs.replace(COUNT, name="again"), groups)])


def read_all(storage: LocalStorage) -> None:
    for state in read_info(storage).states:
        read(storage, state.files)


def test_every_flipped_bit_is_noticed(whole: tuple[LocalStorage, SavepointInfo]) -> None:
    storage, info = whole
    chance = random.Random(3)
    for path in ("savepoint.json", info.states[0].files[0].path):
        data = storage.read(path)
        for place in chance.sample(range(len(data)), min(len(data), 1500)):
            damaged = bytearray(data)
            damaged[place] ^= 1 << chance.randrange(8)
            storage.replace(path, bytes(damaged), durable=False)
            with pytest.raises(CorruptFileError, match=path.rpartition("/")[2].replace(".", r"\.") + "|format"):
                read_all(storage)
        storage.replace(path, data, durable=False)
    read_all(storage)


@pytest.mark.parametrize("damage", ["cut", "longer", "empty", "zeroed", "removed", "swapped", "of another savepoint"])
def test_other_damage_is_noticed(whole: tuple[LocalStorage, SavepointInfo], damage: str, tmp_path: Path) -> None:
    storage, info = whole
    path, other = (state.files[0].path for state in info.states)
    data = storage.read(path)
    if damage == "swapped":
        storage.replace(path, storage.read(other))
        storage.replace(other, data)
    elif damage == "of another savepoint":
        elsewhere = LocalStorage(str(tmp_path / "elsewhere"))
        write(elsewhere, [(COUNT, {1: dict([entry("x", 1)])})])
        storage.replace(path, elsewhere.read(path))
    elif damage == "removed":
        storage.delete([path])
    else:
        changed = {"cut": data[:-1], "longer": data + b"x", "empty": b"", "zeroed": bytes(len(data))}[damage]
        storage.replace(path, changed)
    with pytest.raises(CorruptFileError, match="cannot be used"):
        read_all(storage)


def test_without_its_json_there_is_no_savepoint(whole: tuple[LocalStorage, SavepointInfo], tmp_path: Path) -> None:
    storage, _ = whole
    storage.delete(["savepoint.json"])
    with pytest.raises(NotFoundError, match="holds no savepoint") as caught:
        read_info(storage)
    assert "never finished" in caught.value.detail
    with pytest.raises(NotFoundError, match="holds no savepoint"):
        read_info(LocalStorage(str(tmp_path / "nothing")))


def test_one_of_the_future_is_refused(whole: tuple[LocalStorage, SavepointInfo]) -> None:
    storage, info = whole
    storage.replace("savepoint.json", encode_info(msgspec.structs.replace(info, version=5)))
    with pytest.raises(CorruptFileError, match="format 5; this Penstock reads formats up to 4"):
        read_info(storage)

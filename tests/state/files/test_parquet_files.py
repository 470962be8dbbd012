"""State files of savepoints in a chain: what is read of them, and under which keys. And of rescaled files, how much."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from penstock.compile.layout import lay_out
from penstock.compile.stages import StagedPlan
from penstock.epochs.committing.compaction import choose, read_size
from penstock.errors import CorruptFileError
from penstock.ids import Term
from penstock.jobs.manifest import StateInfo, StateLayout
from penstock.runtime.job import Stage
from penstock.snapshots.savepoint.state_file import StateWriter
from penstock.state.entries.store_keys import group_of_store_key, value_prefix
from penstock.state.files.durable import FileIdentity, FileRef, read_entries, verify_file, write_base
from penstock.state.key_groups import NEW_JOBS, KeyGroups, groups_of
from penstock.storage.local import LocalStorage

INFO = StateInfo("step", "seen", "value", "int", "int")
GROUPS = 16
NAME = "state/7-step-seen.parquet"


class Counting(LocalStorage):
    """Knows how many bytes were read."""

    read_bytes = 0

    def read(self, path: str) -> bytes:
        data = super().read(path)
        self.read_bytes += len(data)
        return data

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        data = super().read_range(path, offset, length)
        self.read_bytes += len(data)
        return data

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, _Counted(super().open(path), self))


class _Counted(io.RawIOBase):
    def __init__(self, file: BinaryIO, storage: Counting) -> None:
        self._file = file
        self._storage = storage

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self._storage.read_bytes += len(data)
        return data


def entries(rows: int, size: int) -> dict[int, list[tuple[bytes, bytes]]]:
    """Sorted, by group; every fourth group is empty."""
    found: dict[int, list[tuple[bytes, bytes]]] = {}
    for number in range(rows):
        key = b"\xcd" + number.to_bytes(2, "big")  # a MessagePack integer
        group = KeyGroups(GROUPS, NEW_JOBS).of(key)
        if group % 4:
            found.setdefault(group, []).append((key, (b"\x01" * size if size < 9 else os.urandom(size))))
    return found


def written(storage: LocalStorage, groups: dict[int, list[tuple[bytes, bytes]]]) -> FileRef:
    writer = StateWriter(storage, NAME, "0" * 32, 7, INFO, KeyGroups(GROUPS, NEW_JOBS))
    for group in sorted(groups):
        writer.group(group, [key for key, _ in groups[group]], [value for _, value in groups[group]])
    file = writer.close()
    return FileRef(file.path, "base", file.bytes, file.checksum, file.rows, 0, GROUPS - 1, state=3)


@pytest.fixture
def storage(tmp_path: Path) -> Counting:
    return Counting(tmp_path)


def test_entries_get_the_id_of_the_new_program(storage: Counting) -> None:
    groups = entries(3000, 1)
    ref = written(storage, groups)
    verify_file(storage, ref)
    expected = [(value_prefix(group, 3) + key, value) for group in sorted(groups) for key, value in groups[group]]
    found = [pair for keys, values in read_entries(storage, ref) for pair in zip(keys, values, strict=True)]
    assert found == expected
    assert [key for key, _ in found] == sorted(key for key, _ in found)
    some = [key for keys, _ in read_entries(storage, ref, groups=range(5, 9)) for key in keys]
    assert {group_of_store_key(key) for key in some} == {5, 6, 7}
    assert list(read_entries(storage, ref, groups=range(8, 9))) == []
    assert list(read_entries(storage, ref, keep=lambda state: state == 7)) == []
    assert [key for keys, _ in read_entries(storage, ref, keep=lambda state: state == 3) for key in keys] == [k for k, _ in found]


def test_every_byte_is_checked(storage: Counting, tmp_path: Path) -> None:
    ref = written(storage, entries(200, 1))
    whole = (tmp_path / NAME).read_bytes()
    for at in range(0, len(whole), 37):
        (tmp_path / NAME).write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(CorruptFileError, match="7-step-seen"):
            verify_file(storage, ref)
    (tmp_path / NAME).write_bytes(whole)
    verify_file(storage, ref)


def test_what_is_read_is_what_was_written(storage: Counting, tmp_path: Path) -> None:
    """Reading needs two columns only: damage elsewhere is not met, damage in these is, or the rows are right."""
    ref = written(storage, entries(300, 1))
    expected = list(read_entries(storage, ref))
    whole = (tmp_path / NAME).read_bytes()
    met = 0
    for at in range(4, len(whole) - 8, 61):
        (tmp_path / NAME).write_bytes(whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :])
        try:
            assert list(read_entries(storage, ref)) == expected
        except CorruptFileError:
            met += 1
    assert met > 10


@pytest.mark.parametrize("kind", ["base", "parquet"])
def test_after_rescaling_only_the_ranges_are_read(storage: Counting, kind: str) -> None:
    """One partition becomes four: each reads about a quarter of the file."""
    groups = entries(12_000, 1000)
    if kind == "parquet":
        ref = written(storage, groups)
    else:
        rows = ((value_prefix(group, 3) + key, value) for group in sorted(groups) for key, value in groups[group])
        ref = write_base(storage, "state/s1/p0/1-1.base", rows, FileIdentity("job", 1, "1", 0, "1"))
    before = StateLayout(1, GROUPS, "before", {"3": INFO}, [[3]], [[[ref]]], [[{}]])
    plan = StagedPlan(stages=(Stage(index=0, steps=(), state_ids=(3,)),), rows=(), fingerprint="after")
    layout = lay_out(plan, {"3": INFO}, before, 4, before.key_groups, Term(2))
    seen = 0
    for partition in range(4):
        (part,) = layout.chains[0][partition]
        assert read_size(part) <= ref.size // 3
        storage.read_bytes = 0
        keys = [key for keys, _ in read_entries(storage, part) for key in keys]
        assert {group_of_store_key(key) for key in keys} <= set(groups_of(partition, 4, GROUPS))
        seen += len(keys)
        assert len(keys) * 900 < storage.read_bytes < ref.size * 0.45
    assert seen == ref.entries


def test_a_chain_that_begins_with_a_savepoint_becomes_a_base_once() -> None:
    def ref(name: str, kind: str, size: int, state: int | None = None) -> FileRef:
        return FileRef(name, kind, size, "", 1, 0, 15, state=state)  # type: ignore[arg-type]

    deltas = [ref(f"{n}.delta", "delta", 10) for n in range(4)]
    chosen = choose([ref("a.parquet", "base", 100_000, 1), *deltas], 4)
    assert chosen is not None
    assert (chosen.start, chosen.stop, chosen.base) == (0, 5, True)
    assert choose([ref("a.base", "base", 100_000), *deltas], 4) is None
    tiered = choose([ref("a.base", "base", 100_000), *deltas, ref("5.delta", "delta", 10)], 4)
    assert tiered is not None
    assert (tiered.start, tiered.base) == (1, False)
    assert choose([ref("a.parquet", "base", 100_000, 1), *deltas], 5) is None

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import AlreadyExistsError, CorruptFileError, NotFoundError, StateError
from penstock.state.entries.store_keys import group_of_store_key, state_id_of_store_key, value_prefix
from penstock.state.files import durable
from penstock.state.files.durable import FileIdentity, FileRef, read_entries, read_identity, write_base, write_delta
from penstock.storage import LocalStorage

WHO = FileIdentity(job="a-job", epoch=7, stage="by-room", partition=1, attempt="1-1-2-3")
Entries = list[tuple[bytes, bytes | None]]

store_keys = st.builds(lambda g, s, k: value_prefix(g, s) + k, st.integers(0, 6), st.integers(0, 3), st.binary(max_size=6))
deltas = st.dictionaries(store_keys, st.none() | st.binary(max_size=20)).map(lambda d: sorted(d.items()))


def _all(blocks: Iterator[durable.Block]) -> Entries:
    return [pair for keys, values in blocks for pair in zip(keys, values, strict=True)]


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "BLOCK_SIZE", 64)
    monkeypatch.setattr(durable, "READ_SIZE", 150)


_names = iter(range(10**9))


@given(deltas, st.integers(0, 7), st.integers(0, 7), st.sets(st.integers(0, 3)))
@pytest.mark.usefixtures("small_blocks")
def test_what_is_written_is_read(storage: LocalStorage, entries: Entries, lo: int, hi: int, states: set[int]) -> None:
    ref = write_delta(storage, f"s/{next(_names)}.delta", entries, WHO)
    assert _all(read_entries(storage, ref)) == entries
    assert ref.entries == len(entries)
    part = [(k, v) for k, v in entries if lo <= group_of_store_key(k) < hi]
    assert _all(read_entries(storage, ref, groups=range(lo, max(lo, hi)))) == part
    limited = msgspec.structs.replace(ref, lo=lo, hi=hi)
    assert _all(read_entries(storage, limited)) == part
    kept = [(k, v) for k, v in entries if state_id_of_store_key(k) in states]
    assert _all(read_entries(storage, ref, keep=states.__contains__)) == kept
    base = write_base(storage, f"s/{next(_names)}.base", ((k, v) for k, v in entries if v is not None), WHO, covers="d")
    assert _all(read_entries(storage, base)) == [(k, v) for k, v in entries if v is not None]
    assert base.covers == "d"


def _sample() -> Entries:
    chance = random.Random(5)
    made = {value_prefix(chance.randrange(8), 1) + chance.randbytes(8): chance.randbytes(9) for _ in range(60)}
    return sorted({**made, value_prefix(3, 2): None}.items())


@given(st.data())
@pytest.mark.usefixtures("small_blocks")
def test_any_changed_byte_is_found(storage: LocalStorage, data: st.DataObject) -> None:
    name = f"f{next(_names):06}"  # of one length: it is in the file, whose size bounds what is drawn
    ref = write_delta(storage, name, _sample(), WHO)
    content = bytearray(storage.read(name))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    storage.replace(name, bytes(content))
    with pytest.raises(CorruptFileError, match=name):
        _all(read_entries(storage, ref))


def test_every_single_byte_of_a_small_file_is_covered(storage: LocalStorage) -> None:
    ref = write_delta(storage, "one", _sample()[:12], WHO)
    content = storage.read("one")
    for at in range(len(content)):
        storage.replace("one", content[:at] + bytes((content[at] ^ 0x10,)) + content[at + 1 :], durable=False)
        with pytest.raises(CorruptFileError, match="one"):
            _all(read_entries(storage, ref))


def test_damage_is_described(storage: LocalStorage) -> None:
    ref = write_delta(storage, "a", _sample(), WHO)
    other = write_delta(storage, "b", _sample(), WHO)
    content = storage.read("a")
    for damaged, found in [
        (content[:-1], "bytes instead of"),
        (b"", "0 bytes"),
        (bytes(len(content)), "does not start"),
        (storage.read("b"), "checksum"),
        (content[:7] + b"\x09" + content[8:], "version 9"),
    ]:
        storage.replace("a", damaged)
        with pytest.raises(CorruptFileError, match=found):
            _all(read_entries(storage, ref))
    storage.replace("a", storage.read("b"))
    with pytest.raises(CorruptFileError, match="it says it is the delta file 'b'"):
        _all(read_entries(storage, msgspec.structs.replace(other, name="a")))


def test_files_of_others_are_refused_by_name(storage: LocalStorage) -> None:
    ref = write_delta(storage, "a", _sample(), WHO)
    assert read_identity(storage, ref) == WHO
    assert _all(read_entries(storage, ref, job="a-job", stage="by-room")) == _sample()
    with pytest.raises(CorruptFileError, match="job 'a-job', not to 'another'"):
        _all(read_entries(storage, ref, job="another"))
    with pytest.raises(CorruptFileError, match="stage 'by-room', not to 'another'"):
        _all(read_entries(storage, ref, stage="another"))


def test_a_missing_file_is_named(storage: LocalStorage) -> None:
    ref = write_delta(storage, "here", _sample(), WHO)
    with pytest.raises(NotFoundError, match="gone"):
        _all(read_entries(storage, msgspec.structs.replace(ref, name="gone")))


def test_writing_is_exclusive(storage: LocalStorage) -> None:
    write_delta(storage, "a", [], WHO)
    with pytest.raises(AlreadyExistsError):
        write_delta(storage, "a", _sample(), WHO)
    with pytest.raises(AlreadyExistsError):
        write_base(storage, "a", [], WHO)


def test_what_is_not_sorted_is_refused(storage: LocalStorage) -> None:
    one, two = (b"\0\0\0\1a", b""), (b"\0\0\0\1b", b"")
    for entries in ([two, one], [one, one]):
        with pytest.raises(StateError, match="not sorted"):
            write_base(storage, "a", entries, WHO)
    with pytest.raises(StateError, match="deletion"):
        write_base(storage, "a", [(b"\0\0\0\1a", None)], WHO)  # type: ignore[list-item]
    assert not storage.exists("a")


def test_small_files_are_small_and_empty_ones_are_empty(storage: LocalStorage) -> None:
    assert write_delta(storage, "few", _sample()[:10], WHO).size < 500
    empty = write_delta(storage, "none", [], WHO)
    assert (empty.entries, _all(read_entries(storage, empty))) == (0, [])


class Counting(LocalStorage):
    read_bytes = 0

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        data = super().read_range(path, offset, length)
        Counting.read_bytes += len(data)
        return data


def test_only_wanted_groups_are_read_of_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "READ_SIZE", 200_000)
    storage = Counting(str(tmp_path))
    chance = random.Random(1)
    keys = (value_prefix(group, 1) + number.to_bytes(4, "big") for group in range(64) for number in range(500))
    entries = ((key, chance.randbytes(100)) for key in keys)
    ref = write_base(storage, "large", entries, WHO)
    got = _all(read_entries(storage, ref, groups=range(10, 12)))
    assert len(got) == 1000
    assert Counting.read_bytes < ref.size / 4


def test_a_ref_is_kept_in_a_manifest() -> None:
    ref = FileRef("n", "base", 1, "c", 2, 3, 4, lo=1, hi=9, covers="d")
    assert msgspec.json.decode(msgspec.json.encode(ref), type=FileRef) == ref

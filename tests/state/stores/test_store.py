"""What every kind of store promises."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.state.stores.long_keys import KEPT, STORED
from penstock.state.stores.store import Block, LocalStore, StoreBehindError, StoreKind, open_stores
from tests.state.kinds import KINDS, open_store

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> StoreKind:
    kind: StoreKind = request.param
    return kind


@pytest.fixture
def store(tmp_path: Path, kind: StoreKind) -> Iterator[LocalStore]:
    store = open_store(kind, str(tmp_path / "store"))
    yield store
    store.close()


def _content(store: LocalStore) -> dict[bytes, bytes]:
    with store.view() as view:
        return dict(view.range(b"", None))


def _key(number: int) -> bytes:
    return HEAD + number.to_bytes(8, "big")


HEAD = b"\0\1\0\1"
LONG = HEAD + b"x" * (KEPT - 6)
short_keys = st.builds(lambda k: b"\0\1\0" + k, st.binary(min_size=1, max_size=3))
tails = st.sampled_from([0, 1, 2, 5, 30, 37, 38, 60, 700])
long_keys = st.builds(lambda a, n, b: LONG + a + b"y" * n + b, st.binary(max_size=6), tails, st.binary(max_size=2))
look_alikes = st.builds(lambda b: (HEAD + b"z" * KEPT)[:KEPT] + b"\xc1" + b * 32, st.sampled_from([b"a", b"b"]))
any_keys = short_keys | long_keys | look_alikes
epochs = st.lists(st.dictionaries(any_keys, st.none() | st.binary(max_size=9), max_size=12), max_size=5)


@every_kind
@given(epochs, st.lists(any_keys | st.builds(lambda k, n: k[:n], any_keys, st.integers(0, 600)), max_size=6))
def test_it_is_a_sorted_dict(
    tmp_path: Path, kind: StoreKind, deltas: list[dict[bytes, bytes | None]], probes: list[bytes]
) -> None:
    store = open_store(kind, tempfile.mkdtemp(dir=tmp_path))
    model: dict[bytes, bytes] = {}
    after = None
    for number, delta in enumerate(deltas):
        assert store.apply_entries(f"d{number}", after, sorted(delta.items()))
        after = f"d{number}"
        model.update({k: v for k, v in delta.items() if v is not None})
        for key in [k for k, v in delta.items() if v is None]:
            model.pop(key, None)
        with store.view() as view:
            assert list(view.scan(HEAD)) == sorted((k, v) for k, v in model.items() if k.startswith(HEAD))
    assert store.applied() == after
    assert store.entries() == len(model)
    with store.view() as view:
        assert view.applied == after
        assert list(view.range(b"", None)) == sorted(model.items())
        known = [probe for probe in [*probes, *model] if len(probe) >= 4]
        assert view.get_many(known) == {key: model[key] for key in known if key in model}
        for probe in [*probes, *model]:
            if len(probe) >= 4:
                assert view.get(probe) == model.get(probe)
            assert list(view.scan(probe)) == sorted((k, v) for k, v in model.items() if k.startswith(probe))
            for other in probes:
                assert list(view.range(probe, other)) == sorted((k, v) for k, v in model.items() if probe <= k < other)
    store.close()


def test_a_key_that_looks_like_a_long_one(store: LocalStore) -> None:
    key = (HEAD + b"z" * KEPT)[:KEPT] + b"\xc1" + b"a" * 32
    assert len(key) == STORED
    store.apply_entries("d", None, [(key, b"value")])
    assert _content(store) == {key: b"value"}


def test_a_file_is_applied_once_and_in_order(store: LocalStore) -> None:
    assert store.apply_entries("a", None, [(_key(1), b"1")])
    assert not store.apply_entries("a", None, [(_key(1), b"2")])
    with pytest.raises(StoreBehindError, match="c follows b, but the local store is at a"):
        store.apply_entries("c", "b", [(_key(1), b"3")])
    with pytest.raises(StoreBehindError):
        store.apply_entries("b", None, [])
    assert _content(store) == {_key(1): b"1"}
    assert store.apply_entries("b", "a", [])
    assert store.applied() == "b"


def test_a_failed_apply_has_no_effect(store: LocalStore) -> None:
    def broken() -> Iterator[Block]:
        yield [_key(1)], [b"1"]
        raise StateError("damaged")

    with pytest.raises(StateError, match="damaged"):
        store.apply("a", None, broken())
    with pytest.raises(StateError, match="not sorted"):
        store.apply("a", None, [([_key(2), _key(1)], [b"", b""])])
    assert (store.applied(), store.entries(), _content(store)) == (None, 0, {})


def test_a_view_does_not_move(store: LocalStore, kind: StoreKind, monkeypatch: pytest.MonkeyPatch) -> None:
    store.apply_entries("a", None, [(_key(1), b"1")])
    changes: list[tuple[bytes, bytes | None]] = [(_key(1), b"2"), (_key(2), b"2")]
    with store.view() as view:
        if kind == "rocksdb":  # it has one content only
            monkeypatch.setattr(type(store), "patience_s", 0.05)
            with pytest.raises(StateError, match="1 views are open"):
                store.apply_entries("b", "a", changes)
        else:
            store.apply_entries("b", "a", changes)
        assert (view.applied, view.get(_key(1)), view.get(_key(2))) == ("a", b"1", None)
        assert list(view.range(b"", None)) == [(_key(1), b"1")]
    assert store.apply_entries("b", "a", changes) == (kind == "rocksdb")
    assert _content(store) == {_key(1): b"2", _key(2): b"2"}


def test_closed_views_and_stores_are_refused(store: LocalStore) -> None:
    store.apply_entries("a", None, [(_key(1), b"1")])
    view = store.view()
    busy = store.idle
    view.close()
    view.close()
    assert (busy, store.idle) == (False, True)
    for use in (view.get, lambda key: view.get_many([key]), lambda key: list(view.scan(key))):
        with pytest.raises(StateError, match="closed view"):
            use(_key(1))
    store.close()
    for ask in (store.applied, store.view, store.entries):
        with pytest.raises(StateError, match="is closed"):
            ask()


def test_it_is_open_once_in_a_process(tmp_path: Path, kind: StoreKind) -> None:
    path = str(tmp_path / "s")
    os.symlink(tmp_path, tmp_path.parent / f"{tmp_path.name}-link")
    store = open_store(kind, path)
    assert open_store(kind, str(tmp_path.parent / f"{tmp_path.name}-link" / "s")) is store
    assert store in open_stores()
    store.close()
    store.close()
    assert store not in open_stores()
    with pytest.raises(StateError, match="is closed"):
        store.view()
    assert open_store(kind, path) is not store
    open_store(kind, path).close()


def test_what_it_uses(store: LocalStore) -> None:
    store.apply_entries("a", None, [(_key(n), os.urandom(100)) for n in range(5000)])
    assert store.entries() == 5000
    store.apply_entries("b", "a", [(_key(n), None if n % 2 else b"") for n in range(6000)])
    assert store.entries() == 3000
    assert store.bytes_used() > 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_does_not_use_its_parents(store: LocalStore) -> None:
    store.apply_entries("a", None, [(_key(1), b"1")])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.applied()
        except StateError:
            code = 0 if not open_stores() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.apply_entries("b", "a", [(_key(1), b"2")])
    assert _content(store) == {_key(1): b"2"}

"""The append log: whatever fails between any two calls, what was answered is there once, and is read once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors import AppendLogSource
from penstock.connectors.append_log import log as writing
from penstock.connectors.append_log.log import AppendLog, NoLogError, RefusedAppendError
from penstock.connectors.append_log.positions import read_up_to
from penstock.connectors.append_log.segment import segment_name
from penstock.connectors.protocol import Limits, Ordering, RemovesInput
from penstock.errors import CorruptFileError, SourceError, StorageError
from penstock.storage import LocalStorage
from tests.connectors.driving import Drive, context


@dataclass
class Order:
    item: str
    pieces: int = 1


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "EVERY_S", 0.0)


class Fails(LocalStorage):
    """Fails at the calls that are told, before or after they take effect."""

    def __init__(self, root: str, faults: Iterator[str]) -> None:
        super().__init__(root)
        self.faults = faults

    def child(self, path: str) -> Fails:
        return Fails(super().child(path).root, self.faults)

    def create(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._around(lambda: super(Fails, self).create(path, data, durable=durable))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        data: bytes = self._around(lambda: super(Fails, self).read_range(path, offset, length))
        return data

    def exists(self, path: str) -> bool:
        found: bool = self._around(lambda: super(Fails, self).exists(path))
        return found

    def _around(self, call: Callable[[], Any]) -> Any:
        fault = next(self.faults, "")
        if fault == "before":
            raise StorageError("failed")
        found = call()
        if fault == "after":
            raise StorageError("failed after it was done")
        return found


def opened(folder: Path | str, **options: Any) -> Drive:
    d = Drive(AppendLogSource(**options), context(folder))
    d.plan()
    return d


def order(n: int) -> dict[str, Any]:
    return {"item": f"i{n}"}


faults = st.lists(st.sampled_from(["", "", "", "before", "after"]), max_size=40)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.booleans()), max_size=12),
    faults,
    st.lists(st.builds(Limits, records=st.integers(1, 9), bytes=st.sampled_from([1, 1 << 20]))),
    st.sampled_from(["none", "partition", "time"]),
)
def test_whatever_fails(
    tmp_path_factory: pytest.TempPathFactory,
    appends: list[tuple[int, int, bool]],
    told: list[str],
    limits: list[Limits],
    ordering: Ordering,
) -> None:
    """Appends by two writers, which retry, while their storage fails and they are started again."""
    folder = str(tmp_path_factory.mktemp("log"))
    d = Drive(AppendLogSource(), context(folder, ordering=ordering))
    d.plan()
    failing = iter(told)
    logs: list[AppendLog | None] = [None, None]
    answered: dict[str, tuple[int, list[int]]] = {}
    sent: dict[str, list[int]] = {}
    ways = iter(limits)
    for number, (id_number, many, again) in enumerate(appends):
        id = f"id{id_number}"
        values = sent.setdefault(id, [number * 10 + k for k in range(many)])
        for attempt in range(2 if again else 1):
            which = (number + attempt) % 2
            try:
                log = logs[which]
                if log is None:
                    log = logs[which] = AppendLog(Fails(folder, failing), "in")
                made = log.append([{"n": n} for n in values], id=id)
            except StorageError:
                dead = logs[which]
                if number % 3 == 0 and dead is not None:  # it dies, and another one comes
                    dead.close()
                    logs[which] = None
                continue
            except SourceError:
                continue
            assert made.records == len(values)
            assert answered.setdefault(id, (made.end, values))[0] == made.end, "a retry is answered as the first time"
        if number % 4 == 3:
            d.step(next(ways, Limits(records=1 << 30, bytes=1 << 30, readers=2)))
    for open_log in logs:
        if open_log is not None:
            open_log.close()
    for _ in range(500):
        if not d.step(next(ways, Limits(records=1 << 30, bytes=1 << 30, readers=2))).backlog:
            break
        d.crash()
    read = [row["n"] for partition in d.read.values() for row in partition]
    assert len(read) == len(set(read)), "nothing is applied twice"
    for id, values in sent.items():
        there = [n for n in values if n in set(read)]
        assert there in ([], values), "whole, or not at all"
        if id in answered:
            end, _ = answered[id]
            assert there == values
            assert end <= len(read)
            if ordering != "none":
                assert read[end - len(values) : end] == values, "at the position that was answered"


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6), st.lists(st.builds(Limits, records=st.integers(1, 9), bytes=st.just(1)))
)
def test_it_is_read_in_order(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limits: list[Limits]) -> None:
    folder = tmp_path_factory.mktemp("log")
    d = opened(folder)
    n = 0
    with AppendLog(str(folder), "in") as log:
        for size in sizes:
            log.append([{"n": k} for k in range(n, n + size)])
            n += size
    ways = iter(limits)
    while d.step(next(ways, Limits(records=7, bytes=1 << 20))).backlog:
        pass
    assert [row["n"] for row in d.all] == list(range(n))
    identity = d.position["log"]
    assert read_up_to(identity, d.position) == n
    assert read_up_to("another", d.position) == 0


def test_many_at_once_are_one_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    d = opened(tmp_path)
    monkeypatch.setattr(writing, "EVERY_S", 0.2)
    with AppendLog(str(tmp_path), "in") as log:
        log.append([order(0)])
        answers: list[Future[Any]] = [log.submit([json.dumps(order(n)).encode()]) for n in range(1, 50)]
        assert [answer.result().end for answer in answers] == list(range(2, 51))
    assert len(list((tmp_path / "feeds/in/log").glob("*.segment"))) <= 3
    d.step()
    assert [row["item"] for row in d.all] == [f"i{n}" for n in range(50)]


def test_what_does_not_fit_is_refused_when_it_is_appended(tmp_path: Path) -> None:
    d = opened(tmp_path, schema=Order)
    with AppendLog(str(tmp_path), "in") as log:
        for bad in ({"pieces": 1}, {"item": 7}, [1], "x"):
            with pytest.raises(RefusedAppendError, match="record 1"):
                log.append([order(1), bad])
        with pytest.raises(RefusedAppendError):
            log.submit([b"{"])
        with pytest.raises(RefusedAppendError):
            log.append([])
        log.append([order(1)], id="a")
        with pytest.raises(RefusedAppendError, match="other records"):
            log.append([order(2)], id="a")
        log.submit([b'{\n "item": "wide\\nlines",\n "pieces": 2}\n']).result()
    d.step()
    assert d.all == [Order("i1"), Order("wide\nlines", 2)]


def test_records_of_an_earlier_schema(tmp_path: Path) -> None:
    opened(tmp_path)
    with AppendLog(str(tmp_path), "in") as log:
        log.append([order(1), {"other": 1}, order(2)])
    with pytest.raises(SourceError, match="record 1 of the log"):
        opened(tmp_path, schema=Order).step()
    d = opened(tmp_path, schema=Order, on_bad_record="skip")
    d.step()
    assert d.all == [Order("i1"), Order("i2")]


def test_there_must_be_a_log(tmp_path: Path) -> None:
    with pytest.raises(NoLogError) as caught:
        AppendLog(str(tmp_path), "../in")
    assert caught.value.hint


def test_old_records_are_removed_when_they_were_read(tmp_path: Path) -> None:
    d = opened(tmp_path, retention=timedelta(0))
    with AppendLog(str(tmp_path), "in") as log:
        for n in range(6):
            log.append([order(n)])
    d.now_ms = 1 << 50
    planned = d.plan(Limits(records=4, bytes=1 << 20))
    assert isinstance(d.enumerator, RemovesInput)
    d.enumerator.unread(planned.splits)
    d.commit(planned)
    assert (tmp_path / "feeds/in/log" / segment_name(1)).exists(), "what is not read stays"
    d.enumerator.unread([])
    d.now_ms += 60_000
    d.step()
    left = sorted(path.name for path in (tmp_path / "feeds/in/log").glob("*.segment"))
    assert left == [segment_name(6)], "the newest stays"
    with AppendLog(str(tmp_path), "in") as log:
        assert log.append([order(6)]).end == 7
    first = {**d.position, "segment": 2, "index": 0, "offset": 1}
    d.step()
    assert [row["item"] for row in d.all] == [f"i{n}" for n in range(7)]
    d.position = first
    d.crash()
    with pytest.raises(SourceError, match="does not have what comes next"):
        d.plan()


def test_who_has_not_looked_for_long_writes_nothing_below_the_log(tmp_path: Path) -> None:
    d = opened(tmp_path, retention=timedelta(0))
    with AppendLog(str(tmp_path), "in") as stale:
        stale.append([order(0)])
        with AppendLog(str(tmp_path), "in") as log:
            for n in range(1, 5):
                log.append([order(n)])
        d.now_ms = 1 << 50
        d.step()
        d.now_ms += 60_000
        d.step()
        with pytest.raises(SourceError, match="gone on"):
            stale.append([order(9)], id="late")
        assert stale.append([order(9)], id="late").end == 6
    d.crash()
    d.step()
    assert [row["item"] for row in d.all] == ["i0", "i1", "i2", "i3", "i4", "i9"]


def test_a_job_with_a_log_of_its_own_begins_with_it(tmp_path: Path) -> None:
    d = opened(tmp_path / "a")
    with AppendLog(str(tmp_path / "a"), "in") as log:
        log.append([order(n) for n in range(5)])
    d.step()
    copy = opened(tmp_path / "b")
    copy.position = d.position
    with AppendLog(str(tmp_path / "b"), "in") as log:
        log.append([order(7)])
    copy.crash()
    copy.step()
    assert copy.all == [order(7)]


@pytest.mark.parametrize("at", [1, 20, -1])
def test_damage_is_noticed(tmp_path: Path, at: int) -> None:
    d = opened(tmp_path)
    with AppendLog(str(tmp_path), "in") as log:
        log.append([order(1)])
    path = tmp_path / "feeds/in/log" / segment_name(1)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFileError):
        d.step()


def test_a_segment_that_was_exchanged_is_noticed(tmp_path: Path) -> None:
    d = opened(tmp_path)
    with AppendLog(str(tmp_path), "in") as log:
        log.append([order(1)])
    d.step()
    path = tmp_path / "feeds/in/log" / segment_name(1)
    path.unlink()
    with AppendLog(str(tmp_path), "in") as log:
        log.append([order(2)])
        log.append([order(3)])
    with pytest.raises(SourceError, match="does not follow"):
        d.step()
    with suppress(FileNotFoundError):
        path.unlink()

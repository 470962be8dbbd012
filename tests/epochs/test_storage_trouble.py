"""A storage that fails for a while: nothing is lost, everybody is told of every epoch once, and the job goes on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import CollectSink, EpochRecord, FileSink, GeneratorSource, RestartPolicy, StreamEnvironment
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import ConfigError, StorageError
from penstock.failpoints import InjectedError, arm
from penstock.storage import LocalStorage

COUNT = 300
SOON = RestartPolicy(attempts=20, first_delay=timedelta(milliseconds=1), factor=1.0)


class Trouble:
    """Calls of some methods fail, so many times, once a path has come up."""

    def __init__(self, patch: pytest.MonkeyPatch, method: str, path: str, times: int, everything: tuple[str, ...] = ()) -> None:
        self.left, self.path = times, path
        self.began = False
        for name in {method, *everything}:
            self._break(patch, name, starts=name == method)

    def _break(self, patch: pytest.MonkeyPatch, name: str, *, starts: bool) -> None:
        whole = getattr(LocalStorage, name)

        def broken(storage: LocalStorage, first: Any, *args: Any, **options: Any) -> Any:
            paths = [first] if isinstance(first, str) else list(first)
            self.began |= starts and any(self.path in path for path in paths)
            if self.began and self.left:
                self.left -= 1
                raise StorageError(f"{name} of {paths} failed")
            return whole(storage, first if isinstance(first, str) else paths, *args, **options)

        patch.setattr(LocalStorage, name, broken)


def run(folder: Path, sink: Any, seen: list[int] | None = None, **settings: Any) -> None:
    env = StreamEnvironment(
        "trouble",
        executor="inline",
        parallelism=2,
        storage=str(folder / "storage"),
        local_dir=str(folder / "local"),
        max_records_per_epoch=10,
        first_records_per_epoch=10,
        keep=2,
        **{"restart": SOON, **settings},
    )
    env.from_source(GeneratorSource(int, count=COUNT, partitions=1), name="numbers").key_by(lambda n: n % 7).sum(
        name="sums"
    ).sink_to(sink, name="out")

    def listen(record: EpochRecord) -> None:
        if seen is not None:
            seen.append(record.records_in)

    env.execute(listener=listen)


def sums() -> list[int]:
    totals = dict.fromkeys(range(7), 0)
    found = []
    for number in range(COUNT):
        totals[number % 7] += number
        found.append(totals[number % 7])
    return sorted(found)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm("")


@pytest.mark.parametrize("pipeline", [0, 3])
@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize(("method", "path"), [("create", "0000000004.done"), ("create", "0000000004.json"), ("delete", ".json")])
def test_trouble_around_a_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: int, method: str, path: str, times: int
) -> None:
    sink, seen = CollectSink(), list[int]()
    trouble = Trouble(monkeypatch, method, path, times, ("create", "list", "read", "delete") if times > 1 else ())
    run(tmp_path, sink, seen, pipeline=pipeline)
    assert not trouble.left
    assert sorted(sink.results()) == sums()
    assert sum(seen) == COUNT, "every epoch is told of once"


def test_an_outage_that_does_not_end_is_given_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Trouble(monkeypatch, "create", "0000000004.json", 10**9, ("list", "read", "delete"))
    with pytest.raises(StorageError, match="failed") as error:
        run(tmp_path, CollectSink(), restart=RestartPolicy(attempts=3, first_delay=timedelta(milliseconds=1)))
    assert any("gave up after 4 failures" in note for note in error.value.__notes__)


# --- another guarantee --------------------------------------------------------------------------------------------------------


def test_what_was_published_at_least_once_is_not_taken_for_epochs(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "out"), format="json")
    arm("epoch:ran=raise@3")
    with pytest.raises(InjectedError):
        run(tmp_path, sink, guarantee="at-least-once", restart=NO_RESTART)
    arm("")
    for guarantee in ("exactly-once", "at-most-once"):
        with pytest.raises(ConfigError, match="'out' has been published to with guarantee='at-least-once'"):
            run(tmp_path, sink, guarantee=guarantee)
    run(tmp_path, sink, guarantee="at-least-once")
    assert sorted(row["value"] for row in read_rows(str(tmp_path / "out"))) == sums()


def test_an_epoch_that_was_committed_exactly_once_is_published_by_a_driver_of_at_least_once(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "out"), format="json")
    arm("manifest:after=raise@3")
    with pytest.raises(InjectedError):
        run(tmp_path, sink, restart=NO_RESTART)
    arm("")
    run(tmp_path, sink, guarantee="at-least-once")
    assert sorted(row["value"] for row in read_rows(str(tmp_path / "out"))) == sums()

"""What a person sees of an error in their function: their own frames."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import FileSource, StreamEnvironment
from penstock.config import NO_RESTART
from penstock.connectors.collection.source import CollectionSource
from penstock.diagnosis.tracebacks import folding
from penstock.errors import PenstockError, SourceError, UserCodeError
from penstock.executors.inline import InlineExecutor
from penstock.runtime.job import CompiledJob


def deeper(number: int) -> int:
    return {0: 0}[number]


def failing(number: int) -> int:
    return deeper(number)


def raised() -> str:
    env = StreamEnvironment("failing", executor="inline", parallelism=1, restart=NO_RESTART)
    env.from_collection([0, 1]).map(failing, name="bad").print()
    try:
        env.execute()
    except UserCodeError as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("it did not fail")


def test_frames_of_the_engine_are_folded() -> None:
    shown = raised()
    assert os.path.dirname(penstock.__file__) not in shown
    assert "in failing" in shown
    assert "in deeper" in shown
    assert "frames of penstock (--trace or PENSTOCK_TRACE=1 shows them)" in shown


def test_they_are_shown_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TRACE", "1")
    shown = raised()
    assert "runtime/task.py" in shown
    assert "epochs/loop.py" in shown
    assert "in deeper" in shown


def environment(**settings: Any) -> StreamEnvironment:
    return StreamEnvironment("failing", executor="inline", parallelism=1, restart=NO_RESTART, **settings)


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


class Shipping(InlineExecutor):
    """Pickles the job, as for workers."""

    def start(self, job: CompiledJob) -> None:
        job.dumps()
        super().start(job)


def run_missing_folder(folder: Path) -> None:
    environment().from_source(FileSource(str(folder / "nowhere"), format="json")).execute_and_collect()


def run_malformed_json(folder: Path) -> None:
    path = written(folder, "bad.json", '{"a": 1}\n{"a": \n')
    environment().from_source(FileSource(path, format="json")).execute_and_collect()


def run_malformed_csv(folder: Path) -> None:
    path = written(folder, "bad.csv", "number\none\n")
    environment().from_source(FileSource(path, format="csv", schema=Numbered)).execute_and_collect()


def run_lock_in_a_closure(folder: Path) -> None:
    lock = threading.Lock()

    def locked(number: int) -> int:
        with lock:
            return number

    environment().from_collection([1]).map(locked).execute_and_collect(executor=Shipping())


def run_without_a_sink(folder: Path) -> None:
    env = environment()
    env.from_collection([1])
    env.execute()


def run_with_a_bad_setting(folder: Path) -> None:
    environment().from_collection([1]).execute_and_collect(parallelism=0)


@dataclass
class Numbered:
    number: int


PROGRAMS = [
    run_missing_folder,
    run_malformed_json,
    run_malformed_csv,
    run_lock_in_a_closure,
    run_without_a_sink,
    run_with_a_bad_setting,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_error_of_ours_is_shown_with_the_users_frames_only(program: Callable[[Path], None], tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        program(tmp_path)
    shown = "".join(traceback.format_exception(caught.value))
    files = {line.split('"')[1] for line in shown.splitlines() if line.lstrip().startswith('File "')}
    assert files == {__file__}
    assert "direct cause" not in shown
    assert "another exception" not in shown
    assert str(caught.value) in shown


def test_the_engine_s_cause_can_still_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        run_lock_in_a_closure(tmp_path)
    assert caught.value.__cause__ is None
    assert "cannot pickle" in str(caught.value.__context__)


def test_every_error_is_shown_whole_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TRACE", "1")
    with pytest.raises(PenstockError) as caught:
        run_lock_in_a_closure(tmp_path)
    assert "cannot pickle" in str(caught.value.__cause__)
    assert "direct cause" in "".join(traceback.format_exception(caught.value))


class BrokenReader(CollectionSource):
    """Fails in a task."""

    def reader(self) -> Any:
        return self

    def read(self, split: Any) -> Any:
        raise LookupError("no such row")

    def close(self) -> None:
        pass


def test_the_user_s_own_exception_stays_the_cause() -> None:
    def wrapped() -> None:
        try:
            deeper(1)
        except KeyError as error:
            raise SourceError("it is not there") from error

    with pytest.raises(SourceError) as caught:
        folding(wrapped)()
    assert isinstance(caught.value.__cause__, KeyError)
    assert "in deeper" in "".join(traceback.format_exception(caught.value))


def test_frames_of_the_user_s_source_are_shown() -> None:
    with pytest.raises(SourceError, match="no such row") as caught:
        environment().from_source(BrokenReader([1])).execute_and_collect()
    shown = "".join(traceback.format_exception(caught.value))
    assert "in read" in shown
    assert os.path.dirname(penstock.__file__) not in shown

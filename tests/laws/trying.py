"""A small job on the inline executor, executors that misbehave in scripted ways, and proof that a check can fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import FileSink, GeneratorSource, JobResult, KeyedContext, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import PenstockError
from penstock.executors.inline import InlineExecutor
from penstock.ids import Epoch
from penstock.jobs.manifest import Manifest, load_manifest
from penstock.runtime.messages import EpochOrder, TaskReport
from penstock.storage import open_storage

COUNT = 300
KEYS = 101


class Crash(BaseException):
    """The driver dies here: nothing catches this."""


class Number(KeyedProcessFunction[int, int, dict[str, int]]):
    """Numbers the records of each key: a record that is lost or seen twice shows in all that follow."""

    seen = ValueState(int, default=0)

    def process(self, value: int, ctx: KeyedContext[int]) -> Iterator[dict[str, int]]:
        self.seen.update(self.seen.value + 1)
        yield {"key": ctx.key, "number": self.seen.value}


def key_of(value: int) -> int:
    return value * 7919 % KEYS


def program(folder: Path, **settings: Any) -> StreamEnvironment:
    """The job, in `folder`."""
    defaults: dict[str, Any] = {
        "storage": str(folder / "storage"),
        "executor": "inline",
        "parallelism": 2,
        "max_records_per_epoch": 20,
        "keep": 4,
        "compact_after": 3,
        "restart": NO_RESTART,
        "local_dir": str(folder / "local"),
    }
    env = StreamEnvironment("numbers", **{**defaults, **settings})
    numbers = env.from_source(GeneratorSource(int, count=COUNT, partitions=2), name="numbers")
    numbers.key_by(key_of).process(Number(), name="number").sink_to(FileSink(str(folder / "out")), name="out")
    return env


def run(folder: Path, executor: Any = None, **settings: Any) -> JobResult:
    """Run the job, or go on with it, in `folder`."""
    return program(folder, **settings).execute(executor=executor)


def check_exact(folder: Path) -> None:
    """Every record of the output is there, once."""
    expected: Counter[tuple[int, int]] = Counter()
    for key, total in Counter(map(key_of, range(COUNT))).items():
        expected.update((key, number) for number in range(1, total + 1))
    assert Counter((row["key"], row["number"]) for row in read_rows(folder / "out")) == expected


def manifests(folder: Path) -> list[Manifest]:
    """The manifests that are retained, oldest first."""
    storage = open_storage(folder / "storage")
    names = sorted((folder / "storage" / "epochs").glob("*.json"))
    return [load_manifest(storage, Epoch(int(name.stem))) for name in names]


class Interrupted(InlineExecutor):
    """Does something else before, or after, it runs the n-th epoch."""

    def __init__(self, at: int, action: Callable[[], None], *, after: bool = False) -> None:
        super().__init__()
        self._left = at
        self._action = action
        self._after = after

    def run(self, order: EpochOrder) -> list[TaskReport]:
        self._left -= 1
        if self._left == 0 and not self._after:
            self._action()
        reports = super().run(order)
        if self._left == 0 and self._after:
            self._action()
        return reports


def breaks(check: Callable[[], None]) -> None:
    """The check of a law notices that the code that keeps it is gone."""
    with pytest.raises((AssertionError, PenstockError, pytest.fail.Exception, KeyError, IndexError)):
        check()


def crash() -> None:
    raise Crash

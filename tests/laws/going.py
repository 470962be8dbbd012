"""A job whose output tells which program wrote it, started from any of its epochs; and what readers must see of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import FileSink, GeneratorSource, JobResult, KeyedContext, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.diagnosis.invocation import UNATTENDED, Invocation
from penstock.epochs.loop import EpochLoop
from penstock.epochs.setup import Setup
from penstock.epochs.starting.takeover import Start
from penstock.executors.inline import InlineExecutor
from penstock.ids import Epoch
from penstock.jobs.manifest import Manifest, Restored, load_manifest
from penstock.storage import open_storage
from tests.laws.trying import KEYS, key_of

COUNT = 160
PER_EPOCH = 20


class Versioned(KeyedProcessFunction[int, int, dict[str, int]]):
    """Numbers the records of each key, and says by which version of the program."""

    seen = ValueState(int, default=0)

    def __init__(self, version: int) -> None:
        self._version = version

    def process(self, value: int, ctx: KeyedContext[int]) -> Iterator[dict[str, int]]:
        self.seen.update(self.seen.value + 1)
        yield {"n": value, "number": self.seen.value, "version": self._version}


def program(folder: Path, version: int = 1, sink: Any = None, **settings: Any) -> StreamEnvironment:
    defaults: dict[str, Any] = {
        "storage": str(folder / "storage"),
        "executor": "inline",
        "parallelism": 2,
        "max_records_per_epoch": PER_EPOCH,
        "keep": 100,
        "compact_after": 3,
        "restart": NO_RESTART,
        "local_dir": str(folder / "local"),
    }
    env = StreamEnvironment("versions", **{**defaults, **settings})
    numbers = env.from_source(GeneratorSource(int, count=COUNT, partitions=2), name="numbers")
    counted = numbers.key_by(key_of).process(Versioned(version), name="count")
    counted.sink_to(FileSink(str(folder / "out")), name="out")
    if sink is not None:
        counted.sink_to(sink, name="other")
    return env


def run(
    folder: Path,
    version: int = 1,
    *,
    start: int | None = None,
    executor: Any = None,
    sink: Any = None,
    invocation: Invocation = UNATTENDED,
    **settings: Any,
) -> JobResult:
    """Resume the job; `start`: from this epoch of its own."""
    env = program(folder, version, sink, **settings)
    storage = open_storage(folder / "storage")
    beginning = None
    if start is not None:
        before = load_manifest(storage, Epoch(start))
        restored = Restored(f"{storage.uri}@{start}", f"{before.job}@{start}", Epoch(start), Epoch(0))
        beginning = Start(before=before, restored=restored)
    setup = Setup(
        graph=env.graph, config=env.config, storage=storage, executor=executor or InlineExecutor(), invocation=invocation
    )
    return EpochLoop(setup, start=beginning).run()


def head(folder: Path) -> Manifest:
    newest = max((folder / "storage" / "epochs").glob("*.json"))
    return load_manifest(open_storage(folder / "storage"), Epoch(int(newest.stem)))


Rows = Counter[tuple[int, int, int]]


def rows(folder: Path) -> Rows:
    return Counter((row["n"], row["number"], row["version"]) for row in read_rows(folder / "out"))


def expected(*parts: tuple[int, int]) -> Rows:
    """The rows when (version, up to which number) read the input one after another."""
    found: Rows = Counter()
    numbers: Counter[int] = Counter()
    n = 0
    for version, stop in parts:
        while n < stop:
            numbers[n * 7919 % KEYS] += 1
            found[n, numbers[n * 7919 % KEYS], version] += 1
            n += 1
    return found


def position(manifest: Manifest) -> int:
    state = manifest.sources.get("numbers")
    return 0 if state is None or state.position is None else int(state.position["next"])

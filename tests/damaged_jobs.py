"""Jobs that were stopped where every file they have left is needed to go on."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import FileSink, GeneratorSource, KeyedContext, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.compile.programs import read_program
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.connectors.twophase import SqliteSink
from penstock.epochs.availability.mirror import Mirror
from penstock.executors.inline import InlineExecutor
from penstock.failpoints import InjectedError, arm
from penstock.ids import Epoch
from penstock.jobs.manifest import Manifest, load_manifest
from penstock.jobs.pins import pin
from penstock.jobs.terms import read_job
from penstock.runtime import committed
from penstock.runtime.messages import EpochOrder, TaskReport
from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.storage import open_storage
from penstock.testing.running import close_stores
from tests.damages import Target, future_document, future_enveloped, future_savepoint, future_state_file

COUNT = 320
EACH = 20
KEYS = 60
STOPPED_AT = 13
Rows = Counter[tuple[int, int]]


class Stopped(BaseException):
    """The driver dies here."""


class Stopping(InlineExecutor):
    """Dies before an epoch is run."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self._left = before

    def run(self, order: EpochOrder) -> list[TaskReport]:
        self._left -= 1
        if self._left == 0:
            raise Stopped
        return super().run(order)


class Number(KeyedProcessFunction[int, int, dict[str, int]]):
    """Numbers the records of each key. The first leave much in the state, the others little: a large base, and deltas."""

    seen = ValueState(int, default=0)
    ballast: ValueState[bytes] = ValueState(bytes)

    def process(self, value: int, ctx: KeyedContext[int]) -> Iterator[dict[str, int]]:
        self.seen.update(self.seen.value + 1)
        if value < KEYS:
            self.ballast.update(hashlib.shake_128(value.to_bytes(4, "big")).digest(600))
        yield {"key": ctx.key, "number": self.seen.value}


def key_of(value: int) -> int:
    return value % KEYS if value < KEYS else value * 7919 % KEYS


def expected() -> Rows:
    rows: Rows = Counter()
    for key, total in Counter(map(key_of, range(COUNT))).items():
        rows.update((key, number) for number in range(1, total + 1))
    return rows


class Scene(ABC):
    """A job that was stopped, in a folder; what is left of it, and how it goes on."""

    def __init__(self, folder: Path, each: int = EACH) -> None:
        self.folder = folder
        self.each = each
        """Records in an epoch: what tells one job from another."""

    def at(self, folder: Path) -> Scene:
        """The same, copied to another folder."""
        return type(self)(folder, self.each)

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    @abstractmethod
    def prepare(self) -> None:
        """Run the job up to where it is stopped."""

    @abstractmethod
    def kinds(self) -> dict[str, Target]:
        """The files it left, by kind."""

    @abstractmethod
    def rows(self, folder: Path) -> Rows:
        """The output, read back."""

    def resume(self, folder: Path) -> Rows:
        """Go on in a copy, with nothing but its files, and read the output."""
        if not folder.exists():
            shutil.copytree(self.folder, folder)
        committed._recent.clear()  # what a new process would not know
        committed._layers.clear()
        self.run(folder)
        return self.rows(folder)

    def check(self, rows: Rows) -> None:
        wrong = expected() - rows, rows - expected()
        assert rows == expected(), f"missing: {dict(wrong[0])}, too many: {dict(wrong[1])}"

    def run(self, folder: Path, executor: Any = None, **settings: Any) -> None:
        """Run the job, or go on with it."""
        defaults: dict[str, Any] = {"storage": str(folder / "storage"), "compact_after": 3}
        with tempfile.TemporaryDirectory(prefix="penstock-local-", ignore_cleanup_errors=True) as local:
            env = StreamEnvironment(
                "numbers",
                executor="inline",
                local_dir=local,
                parallelism=2,
                max_records_per_epoch=self.each,
                first_records_per_epoch=self.each,
                restart=NO_RESTART,
                **{**defaults, **settings},
            )
            numbers = env.from_source(GeneratorSource(int, count=COUNT, partitions=2), name="numbers")
            self.finish(numbers.key_by(key_of).process(Number(), name="number"), folder)
            try:
                env.execute(executor=executor)
            finally:
                close_stores(local)

    @abstractmethod
    def finish(self, stream: Any, folder: Path) -> None:
        """Give the program its sink."""

    def newest(self) -> Manifest:
        newest = max((self.storage / "epochs").glob("*.json"))
        return load_manifest(open_storage(self.storage), Epoch(int(newest.stem)))


class StoppedJob(Scene):
    """Stopped between two epochs, with files for output."""

    _out = "out"

    def prepare(self) -> None:
        self.folder.mkdir(parents=True)
        try:
            self.run(self.folder, Stopping(STOPPED_AT))
        except Stopped:
            self._leave_a_pin()
            return
        raise AssertionError("the job was not stopped")

    def _leave_a_pin(self) -> None:
        """As a reader does that was killed."""
        with pin(open_storage(self.storage), None, "a reader"):
            (made,) = (self.storage / "pins").glob("*.json")
            data = made.read_bytes()
        made.write_bytes(data)

    def finish(self, stream: Any, folder: Path) -> None:
        stream.sink_to(FileSink(str(folder / self._out)), name="out")

    def rows(self, folder: Path) -> Rows:
        return Counter((row["key"], row["number"]) for row in read_rows(folder / "out"))

    def kinds(self) -> dict[str, Target]:
        storage, out = self.storage, self.folder / "out"
        files = [ref for chain in self.newest().state.chains[-1] for ref in chain]

        def listed(pattern: str, root: Path = storage) -> list[Path]:
            return sorted(root.glob(pattern))

        def where_there_are(found: list[Path], kind: str, future: Any = None) -> dict[str, Target]:
            return {kind: _target(found, future)} if found else {}

        def of_state(kind: str, *, merged: bool) -> Target:
            found = [storage / ref.name for ref in files if ref.kind == kind and ("-c" in ref.name) == merged]
            return _target(found, future_state_file)

        return {
            "job.json": Target(storage / "job.json", future=future_document),
            "term": _target(listed("terms/*.json")),
            "manifest": _target(listed("epochs/*.json"), future_enveloped("manifest")),
            "older manifest": _target(listed("epochs/*.json")[:-1], future_enveloped("manifest")),
            "done mark": _target(listed("epochs/*.done")),
            "status.json": Target(storage / "status.json"),
            "base": of_state("base", merged=True),
            "merged delta": of_state("delta", merged=True),
            "delta": of_state("delta", merged=False),
            "file sink: owner": Target(out / "_log" / "owner.json", future=future_document),
            "file sink: last entry": _target(listed("_log/0*.json", out), future_document),
            "file sink: an entry": _target(listed("_log/0*.json", out)[:-3], future_document),
            "file sink: data": _target(listed("data/**/part-*", out)),
            "pin": _target(listed("pins/*.json"), future_document),
            **where_there_are(listed("programs/*.json"), "program", future_enveloped("program")),
            **where_there_are(listed("lease.json"), "lease", future_document),
            **where_there_are(listed("lineage/*.json"), "lineage", future_document),
        }


class UncommittedSink(Scene):
    """Stopped between the manifest and the sink's commit: what was staged is needed."""

    def prepare(self) -> None:
        self.folder.mkdir(parents=True)
        arm(f"manifest:after=raise@{STOPPED_AT}")
        try:
            self.run(self.folder)
        except InjectedError:
            return
        finally:
            arm("")
        raise AssertionError("the job was not stopped")

    def finish(self, stream: Any, folder: Path) -> None:
        sink = SqliteSink(str(folder / "out.sqlite"), "numbers", ("key", "number"))
        stream.sink_to(sink, name="out")

    def rows(self, folder: Path) -> Rows:
        connection = sqlite3.connect(folder / "out.sqlite")
        try:
            return Counter(connection.execute("SELECT key, number FROM numbers").fetchall())
        finally:
            connection.close()

    def kinds(self) -> dict[str, Target]:
        return {
            "undone manifest": _target(sorted((self.storage / "epochs").glob("*.json")), future_enveloped("manifest")),
            "staged rows": _target(sorted(self.storage.glob("sinks/**/*.rows"))),
        }


class FromSavepoint(StoppedJob):
    """A second job is to start from a savepoint of the first."""

    def prepare(self) -> None:
        super().prepare()
        make_savepoint(open_storage(self.storage), None, str(self.folder / "savepoint"))

    def resume(self, folder: Path) -> Rows:
        if not folder.exists():
            shutil.copytree(self.folder, folder)
        committed._recent.clear()
        self.second(folder)
        return self.rows(folder)

    def second(self, folder: Path, executor: Any = None, **settings: Any) -> None:
        """Run the second job, or go on with it."""
        self._out = "second-out"
        source = str(folder / "savepoint") if (folder / "savepoint").exists() else None
        try:
            self.run(folder, executor, **{"storage": str(folder / "second"), "restore_from": source, **settings})
        finally:
            self._out = "out"

    def rows(self, folder: Path) -> Rows:
        """What both published: the second goes on where the savepoint was made."""
        return super().rows(folder) + Counter((row["key"], row["number"]) for row in read_rows(folder / "second-out"))

    def kinds(self) -> dict[str, Target]:
        saved = self.folder / "savepoint"
        states = sorted(saved.glob("state/*.parquet"), key=lambda path: path.stat().st_size)
        return {  # if it is another savepoint's, it is said which file is not the one that it tells of
            "savepoint.json": Target(saved / "savepoint.json", (), future_savepoint, tuple(path.name for path in states)),
            "savepoint Parquet": _target(states),
        }


class Imported(FromSavepoint):
    """A second job has started from a savepoint, which is gone since, and was stopped."""

    def prepare(self) -> None:
        super().prepare()
        try:
            self.second(self.folder, Stopping(2))
        except Stopped:
            shutil.rmtree(self.folder / "savepoint")
            return
        raise AssertionError("the job was not stopped")

    def second(self, folder: Path, executor: Any = None, **settings: Any) -> None:
        super().second(folder, executor, compact_after=100, **settings)  # what was imported stays in use

    def kinds(self) -> dict[str, Target]:
        found = [path for path in (self.folder / "second" / "state" / "imported").rglob("*") if path.is_file()]
        return {"imported file": _target(sorted(found, key=lambda path: path.stat().st_size))}


class FromEarlierEpoch(FromSavepoint):
    """A second job is to start from an earlier epoch of the first: its manifest, and what only it names, are needed."""

    def prepare(self) -> None:
        StoppedJob.prepare(self)

    def second(self, folder: Path, executor: Any = None, **settings: Any) -> None:
        super().second(folder, executor, restore_from=f"{folder / 'storage'}@{self._epoch(folder)}", **settings)

    def rows(self, folder: Path) -> Rows:
        return Counter((row["key"], row["number"]) for row in read_rows(folder / "second-out"))

    def check(self, rows: Rows) -> None:
        """The second job gives what the first gave from then on; that has read `each` records in each epoch but its first."""
        assert rows <= expected()
        assert rows.total() == COUNT - self.each * (self._epoch(self.folder) - 1)

    def kinds(self) -> dict[str, Target]:
        epochs = sorted((self.storage / "epochs").glob("*.json"))
        chosen = next(path for path in epochs if int(path.stem) == self._epoch(self.folder))
        also = (f"epoch {self._epoch(self.folder)} ",)
        return {
            "epoch gone back to": Target(chosen, (epochs[-1],), future_enveloped("manifest"), also),
            "its done mark": Target(chosen.with_suffix(".done"), also=also),
        }

    def _epoch(self, folder: Path) -> int:
        return STOPPED_AT - 4


class Mirrored(StoppedJob):
    """The first storage is lost: the job is to go on from its mirror."""

    def prepare(self) -> None:
        super().prepare()
        storage, newest = open_storage(self.storage), self.newest()
        Mirror(storage, str(self.folder / "mirror"), read_job(storage), newest.term, 4).mirror()
        shutil.rmtree(self.storage)

    def run(self, folder: Path, executor: Any = None, **settings: Any) -> None:
        mirror = folder / "mirror"
        super().run(folder, executor, **({"storage": str(mirror)} if mirror.exists() else {}), **settings)

    def kinds(self) -> dict[str, Target]:
        mirror = self.folder / "mirror"
        return {
            "mirror.json": Target(mirror / "mirror.json", future=future_document),
            "mirror: job.json": Target(mirror / "job.json", future=future_document),
            "mirror: manifest": _target(sorted(mirror.glob("epochs/*.json")), future_enveloped("manifest")),
        }


class Recorded(StoppedJob):
    """The record of the program is read, as `penstock replay` does."""

    def resume(self, folder: Path) -> Rows:
        storage = open_storage(folder / "storage" if folder.exists() else self.storage)
        self._read = read_program(storage, self.newest().program)
        return Counter()

    def check(self, rows: Rows) -> None:
        found = read_program(open_storage(self.storage), self.newest().program)
        same = ("hash", "plan", "files", "arguments")  # it is found by its hash: where it was started does not matter
        assert all(getattr(self._read, name) == getattr(found, name) for name in same)

    def kinds(self) -> dict[str, Target]:
        return {"program, read": _target(sorted(self.storage.glob("programs/*.json")), future_enveloped("program"))}


class AtMostOnce(StoppedJob):
    """Stopped when it had noted what an epoch was about to read, and had not read it."""

    def run(self, folder: Path, executor: Any = None, **settings: Any) -> None:
        super().run(folder, executor, guarantee="at-most-once", **settings)

    def check(self, rows: Rows) -> None:
        """Whatever is skipped: nothing is there twice, and numbers have no gaps."""
        assert max(rows.values()) == 1
        assert len(rows) in (COUNT, COUNT - EACH), f"{len(rows)} rows"

    def kinds(self) -> dict[str, Target]:
        return {"intent": _target(sorted(self.storage.glob("intents/*.json")), future_document)}


def _target(found: list[Path], future: Any = None) -> Target:
    assert found, "the scene has no such file"
    *siblings, path = found
    return Target(path, tuple(siblings), future)


SCENES: list[type[Scene]] = [
    StoppedJob,
    UncommittedSink,
    AtMostOnce,
    FromSavepoint,
    Imported,
    FromEarlierEpoch,
    Mirrored,
    Recorded,
]

"""What a start refuses: by name, with a hint, before anything is changed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from penstock import (
    CollectionSource,
    FileSink,
    GeneratorSource,
    KeyedProcessFunction,
    MapState,
    StreamEnvironment,
    ValueState,
)
from penstock.config import NO_RESTART
from penstock.errors import ConfigError, CorruptFileError, NotFoundError, PenstockError, StateError
from penstock.ids import Epoch, JobId, Term
from penstock.jobs.manifest import Manifest, Restored, SourceState, StateLayout, version_of
from penstock.snapshots.restore.reference import Reference, locate, parse_reference
from penstock.snapshots.restore.resolve import StartingPoint
from penstock.snapshots.restore.restore import Begin, Resume, decide
from penstock.snapshots.savepoint.format import read_info
from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.state.encoding.codecs import PICKLE
from penstock.storage import open_storage
from tests.laws.trying import COUNT, manifests, program


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert program(folder, keep=8).execute().finished
    make_savepoint(open_storage(folder / "storage"), to=str(folder / "savepoint"))
    return folder


def test_references() -> None:
    assert parse_reference("latest") == Reference("latest")
    assert parse_reference("s3://b/jobs/rooms@12") == Reference("epoch", "s3://b/jobs/rooms", Epoch(12))
    assert parse_reference("rooms@latest") == Reference("epoch", "rooms", None)
    assert parse_reference("@7") == Reference("epoch", "", Epoch(7))
    assert parse_reference("s3://user@host/sp") == Reference("savepoint", "s3://user@host/sp")
    with pytest.raises(ConfigError, match="is empty"):
        parse_reference(" ")


def test_where_references_lead(whole: Path, tmp_path: Path) -> None:
    """One function for all: `--from`, `check`, `state`, `diff`."""
    own = open_storage(whole / "storage")

    def led(text: object, **options: Any) -> tuple[str, bool, Epoch | None]:
        found = locate(str(text), **options)
        return found.storage.uri, found.is_savepoint, found.epoch

    assert led(whole / "savepoint") == (open_storage(whole / "savepoint").uri, True, None)
    assert led(whole / "storage") == (own.uri, False, None)
    assert led(f"{whole / 'storage'}@7") == (own.uri, False, 7)
    for text, epoch in (("@7", 7), ("numbers@7", 7), ("numbers@latest", None)):
        assert led(text, own=own, name="numbers") == (own.uri, False, epoch)
    shutil.copytree(whole / "savepoint", tmp_path / "monday@4")
    assert led(tmp_path / "monday@4") == (open_storage(tmp_path / "monday@4").uri, True, None), "a folder may have such a name"
    for text in ("latest", "@7"):
        with pytest.raises(NotFoundError, match="of which job"):
            locate(text)
    with pytest.raises(NotFoundError, match="holds no job"):
        locate(f"{tmp_path / 'nowhere'}@4")
    (tmp_path / "begun" / "state").mkdir(parents=True)
    (tmp_path / "begun" / "state" / "1.parquet").touch()
    with pytest.raises(NotFoundError, match="neither a savepoint nor a job") as caught:
        locate(str(tmp_path / "begun"))
    assert "never finished" in caught.value.detail


def test_a_job_is_started_from_by_one_of_its_epochs(whole: Path, tmp_path: Path) -> None:
    refused(tmp_path, whole / "storage", NotFoundError, "holds no savepoint, but a job", f"--from {whole / 'storage'}@latest")


# --- the decision ------------------------------------------------------------------------------------------------------------


def manifest(epoch: int, job: str = "own", restored: Restored | None = None) -> Manifest:
    layout = StateLayout(1, 128, "")
    return Manifest(version_of(layout, {}), JobId(job), Epoch(epoch), Term(1), 1, None, 0, 0, {}, {}, layout, restored=restored)


def snapshot(epoch: int, job: str, identity: str, *, moving: bool = False) -> StartingPoint:
    return StartingPoint(
        storage=open_storage("/nowhere"), manifest=manifest(epoch, job), source="there", identity=identity, moving=moving
    )


def test_whether_to_start_from_a_snapshot() -> None:
    own, other = JobId("own"), Restored("there", "other@5", Epoch(5), Epoch(1))
    fork = snapshot(5, "other", "other@5")
    assert decide(fork, None, None, own=False, again=False) == Begin()
    assert isinstance(decide(fork, own, manifest(9, restored=other), own=False, again=False), Resume)
    assert decide(fork, own, manifest(9, restored=other), own=False, again=True) == Begin(Epoch(9))
    later = snapshot(7, "other", "other@7")
    with pytest.raises(ConfigError, match="another job"):
        decide(later, own, manifest(9, restored=other), own=False, again=False)
    moving = snapshot(7, "other", "other@7", moving=True)
    assert isinstance(decide(moving, own, manifest(9, restored=other), own=False, again=False), Resume)
    with pytest.raises(ConfigError, match="has reached epoch 9 by itself"):
        decide(moving, own, manifest(9), own=False, again=False)
    back = snapshot(5, "own", "own@5")
    assert decide(back, own, manifest(9), own=True, again=False) == Begin(Epoch(9))
    assert isinstance(decide(snapshot(9, "own", "own@9"), own, manifest(9), own=True, again=True), Resume)
    assert decide(snapshot(5, "own", "0a1b"), own, manifest(9, restored=other), own=False, again=False) == Begin(Epoch(9))


# --- snapshots that are not there, or not whole ------------------------------------------------------------------------------


def refused(tmp_path: Path, source: object, kind: type[PenstockError], *words: str, **settings: Any) -> None:
    with pytest.raises(kind) as caught:
        program(tmp_path, **settings).execute(restore_from=str(source))
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.hint
    assert not list((tmp_path / "storage" / "epochs").glob("*")), "something was committed"


def test_what_is_not_there(whole: Path, tmp_path: Path) -> None:
    refused(tmp_path, tmp_path / "nowhere", NotFoundError, "holds neither a savepoint nor a job")
    refused(tmp_path, f"{tmp_path / 'nowhere'}@4", NotFoundError, "holds no job")
    refused(tmp_path, "latest", ConfigError, "no epoch to resume from")
    last = manifests(whole)[-1].epoch
    refused(tmp_path, f"{whole / 'storage'}@2", ConfigError, "epoch 2", "is not kept", f"{last - 7} to {last}")
    assert not (tmp_path / "storage" / "job.json").exists()


def test_key_groups(whole: Path, tmp_path: Path) -> None:
    refused(tmp_path, whole / "savepoint", ConfigError, "128 key groups", "savepoint-rewrite", max_parallelism=256)
    refused(tmp_path, f"{whole / 'storage'}@latest", ConfigError, "128 key groups", "@", "savepoint-rewrite", max_parallelism=256)


def flip(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 1
    path.write_bytes(data)


def of_the_future(path: Path) -> None:
    text = re.sub(r'"version": \d,', '"version": 5,', path.read_text(), count=1)
    body = text[text.index('"savepoint": ') + len('"savepoint": ') :].removesuffix("\n}\n")
    path.write_text(json.dumps({"crc": crc32(body.encode())}, indent=2).removesuffix("\n}") + f',\n  "savepoint": {body}\n}}\n')


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: flip(f / "savepoint.json"), ["savepoint.json", "damaged"]),
        (lambda f: of_the_future(f / "savepoint.json"), ["format 5"]),
        (lambda f: state_of(f).unlink(), ["1-number-seen.parquet", "missing"]),
        (lambda f: state_of(f).write_bytes(state_of(f).read_bytes()[:-1]), ["1-number-seen.parquet", "bytes instead of"]),
        (lambda f: state_of(f).write_bytes(b""), ["1-number-seen.parquet", "0 bytes"]),
        (lambda f: flip(state_of(f), 0.01), ["number-seen.parquet", "damaged"]),
        (lambda f: flip(state_of(f), 0.3), ["number-seen.parquet", "damaged"]),
        (lambda f: flip(state_of(f), 0.9), ["number-seen.parquet", "footer"]),
        (lambda f: state_of(f).write_bytes(b"\0" * state_of(f).stat().st_size), ["number-seen.parquet"]),
    ],
)
def test_damaged_savepoints(whole: Path, tmp_path: Path, damage: Callable[[Path], None], words: list[str]) -> None:
    shutil.copytree(whole / "savepoint", tmp_path / "savepoint")
    damage(tmp_path / "savepoint")
    refused(tmp_path, tmp_path / "savepoint", (CorruptFileError), *words)


def state_of(savepoint: Path) -> Path:
    (path,) = (savepoint / "state").glob("1-*.parquet")
    return path


@pytest.mark.parametrize("at", [0.1, 0.5, 0.95])
def test_damaged_files_of_another_job(whole: Path, tmp_path: Path, at: float) -> None:
    shutil.copytree(whole / "storage", tmp_path / "other")
    epoch = manifests(whole)[-1]
    for stage in epoch.state.chains:
        for chain in stage:
            for ref in chain:
                flip(tmp_path / "other" / ref.name, at)
    refused(tmp_path, f"{tmp_path / 'other'}@{epoch.epoch}", CorruptFileError, "state/imported/")


def test_a_copy_that_is_damaged_later_is_refused(whole: Path, tmp_path: Path) -> None:
    """Pages are checked whenever they are read."""
    with pytest.raises(CorruptFileError, match="imported"):
        program(tmp_path, local_dir=str(tmp_path / "other-host")).execute(
            restore_from=f"{whole / 'savepoint'}", executor=_Damaging(tmp_path)
        )


class _Damaging:
    """Runs inline, and damages the imported file before it is first read."""

    def __init__(self, folder: Path) -> None:
        from penstock.executors.inline import InlineExecutor

        self._inner = InlineExecutor()
        self._folder = folder

    def start(self, job: Any) -> Any:
        for path in (self._folder / "storage" / "state" / "imported").rglob("*.parquet"):
            data = bytearray(path.read_bytes())
            for at in range(200, len(data) * 2 // 3, 50):
                data[at] ^= 255
            path.write_bytes(data)
        return self._inner.start(job)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_what_a_start_has_copied_is_not_read_again_before_the_take_over(whole: Path, tmp_path: Path) -> None:
    executor = _Opening()
    program(tmp_path).execute(restore_from=f"{whole / 'savepoint'}", executor=executor)
    assert executor.opened == 0, "the copies were read back"
    shutil.rmtree(tmp_path / "local", ignore_errors=True)
    epoch = manifests(tmp_path)[-1].epoch
    program(tmp_path, local_dir=str(tmp_path / "other-host")).execute(
        restore_from=f"{tmp_path / 'storage'}@{epoch - 1}", executor=executor
    )
    assert executor.opened == 1, "files of its own storage are opened by those who will use them"


class _Opening:
    """Runs inline, and counts how often the state is opened before a take-over."""

    def __init__(self) -> None:
        from penstock.executors.inline import InlineExecutor

        self._inner = InlineExecutor()
        self.opened = 0

    def open_state(self, order: Any) -> Any:
        self.opened += 1
        return self._inner.open_state(order)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


# --- programs that do not fit ------------------------------------------------------------------------------------------------


class Pickled(KeyedProcessFunction[int, int, int]):
    seen: ValueState[Any] = ValueState(codec=PICKLE)

    def process(self, value: int, ctx: Any) -> Any:
        self.seen.update({"n": value})
        return [value]


class Mapped(KeyedProcessFunction[int, int, int]):
    seen: MapState[int, int] = MapState(int, int)

    def process(self, value: int, ctx: Any) -> Any:
        return [value]


def changed(folder: Path, function: Any, source: Any = None, step: str = "number", name: str = "numbers") -> StreamEnvironment:
    env = StreamEnvironment(
        "numbers",
        storage=str(folder / "storage"),
        executor="inline",
        parallelism=2,
        restart=NO_RESTART,
        local_dir=str(folder / "local"),
    )
    numbers = env.from_source(source or GeneratorSource(int, count=COUNT, partitions=2), name=name)
    numbers.key_by(lambda n: n % 10).process(function, name=step).sink_to(FileSink(str(folder / "out")), name="out")
    return env


def test_states_that_nobody_claims_or_that_changed(whole: Path, tmp_path: Path) -> None:
    source: dict[str, Any] = {"restore_from": str(whole / "savepoint")}
    with pytest.raises(StateError, match=r"does not claim: number\.seen"):
        changed(tmp_path, Mapped(), step="other").execute(**source)
    with pytest.raises(StateError, match="was a value state and is a map state now"):
        changed(tmp_path, Mapped()).execute(**source)
    assert not (tmp_path / "storage").exists(), "refused before anything was made"
    dropped = changed(tmp_path, Mapped(), step="other").execute(allow_dropped_state=True, **source)
    assert dropped.finished
    assert not list((tmp_path / "storage").rglob("imported/*/*")), "what is dropped is not copied"


def test_pickled_state_needs_trust(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert changed(first, Pickled()).execute().finished
    savepoint = make_savepoint(open_storage(first / "storage")).uri
    for source in (savepoint, f"{first / 'storage'}@latest"):
        with pytest.raises(StateError, match=r"pickle .*: number\.seen") as caught:
            changed(second, Pickled()).execute(restore_from=source)
        assert "--trust" in caught.value.hint
    assert changed(second, Pickled()).execute(restore_from=savepoint, trust=True).finished
    own = manifests(first)[0].epoch
    assert changed(first, Pickled()).execute(restore_from=f"@{own}").finished


def test_sources_by_name(whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    part = tmp_path / "part"
    changed(part, Mapped()).execute(max_records_per_epoch=20, listener=_stop)
    source = make_savepoint(open_storage(part / "storage")).uri
    another = CollectionSource([1, 2, 3])
    with pytest.raises(StateError, match="source 'numbers' was a GeneratorSource and is a CollectionSource now") as caught:
        changed(tmp_path / "kind", Mapped(), another).execute(restore_from=source)
    assert "position_kind" in caught.value.hint
    with pytest.raises(StateError, match="no longer has: numbers"):
        changed(tmp_path / "name", Mapped(), another, name="others").execute(restore_from=source)
    caplog.set_level("INFO", "penstock")
    new = changed(tmp_path / "name", Mapped(), another, name="others")
    assert new.execute(restore_from=source, allow_dropped_state=True).records_in == 3
    assert "source others: new, starts as configured" in caplog.text
    assert "dropping the positions of sources that the program no longer has: numbers" in caplog.text
    kept = manifests(tmp_path / "name")[-1].sources
    assert list(kept) == ["others"]


def _stop(record: object) -> None:
    import signal

    signal.raise_signal(signal.SIGTERM)


def test_a_source_that_has_ended_may_go(tmp_path: Path) -> None:
    env = changed(tmp_path, Mapped())
    env.from_collection([1], name="extra").sink_to(FileSink(str(tmp_path / "extra")), name="extra-out")
    env.execute(max_records_per_epoch=20, listener=_stop)
    assert manifests(tmp_path)[-1].sources["extra"].ended
    assert changed(tmp_path, Mapped()).execute().finished


def test_a_class_that_was_renamed_says_so(tmp_path: Path) -> None:
    class Renamed(CollectionSource):
        position_kind = "CollectionSource"

    class Different(CollectionSource):
        pass

    env = changed(tmp_path, Mapped(), CollectionSource(range(100)))
    env.execute(max_records_per_epoch=20, listener=_stop)
    assert manifests(tmp_path)[-1].sources["numbers"] == SourceState(
        position={"size": 100, "offsets": [20]}, kind="CollectionSource"
    )
    with pytest.raises(StateError, match="is a Different now"):
        changed(tmp_path, Mapped(), Different(range(100))).execute()
    assert changed(tmp_path, Mapped(), Renamed(range(100))).execute().records_in == 80


def test_a_file_without_rows_is_checked_too(whole: Path, tmp_path: Path) -> None:
    """That there are no timers is something that a savepoint says."""
    place = tmp_path / "savepoint"
    shutil.copytree(whole / "savepoint", place)
    empty = [file.path for state in read_info(open_storage(place)).states for file in state.files if not file.rows]
    assert empty
    data = bytearray((place / empty[0]).read_bytes())
    data[len(data) // 2] ^= 1
    (place / empty[0]).write_bytes(data)
    with pytest.raises(CorruptFileError, match=Path(empty[0]).name):
        program(tmp_path, restore_from=str(place)).execute()
    (place / empty[0]).unlink()
    with pytest.raises((CorruptFileError, NotFoundError), match=Path(empty[0]).name):
        program(tmp_path, restore_from=str(place)).execute()
    assert not (tmp_path / "storage" / "epochs").exists()

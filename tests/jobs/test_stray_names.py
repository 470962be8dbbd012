"""Names that are not ours, in every folder of a job's storage, its mirror and its sinks: passed over, and left alone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock import FileSource, StreamEnvironment
from penstock.cli import app
from penstock.cli.strays import stray_names
from penstock.connectors.files.reading.read_output import read_output
from penstock.connectors.twophase import PublishId, WriteAheadSink
from penstock.ids import Epoch, Term
from penstock.jobs import paths
from penstock.jobs.pins import pin
from penstock.jobs.requests import ask
from penstock.storage import open_storage
from penstock.testing import CollectSink
from tests.laws.trying import COUNT, Crash, Interrupted, check_exact, crash, run
from tests.littering import NAMES, check_untouched, litter

FOLDERS = ("epochs", "terms", "intents", "requests", "answers", "pins", "programs", "lineage", "savepoints", "sinks", "feeds")


def litter_all(folder: Path) -> dict[bytes, bytes]:
    """In the storage, in every folder that it may have, and beside the output and the mirror."""
    for place in ("storage", "mirror"):
        for name in FOLDERS:
            (folder / place / name).mkdir(parents=True, exist_ok=True)
    return {path: data for place in ("storage", "mirror", "out") for path, data in litter(folder / place).items()}


def penstock(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-most-once"])
def test_while_a_driver_runs(tmp_path: Path, guarantee: Any) -> None:
    made: dict[bytes, bytes] = {}
    executor = Interrupted(4, lambda: made.update(litter_all(tmp_path)))
    run(tmp_path, executor, guarantee=guarantee, mirror=str(tmp_path / "mirror"))
    check_exact(tmp_path)
    check_untouched(made)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-most-once"])
def test_before_a_start(tmp_path: Path, guarantee: Any) -> None:
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(6, crash), guarantee=guarantee, mirror=str(tmp_path / "mirror"))
    made = litter_all(tmp_path)
    run(tmp_path, guarantee="exactly-once", mirror=str(tmp_path / "mirror"))
    if guarantee == "exactly-once":
        check_exact(tmp_path)
    check_untouched(made)


def test_a_storage_with_nothing_else_in_it(tmp_path: Path) -> None:
    made = litter_all(tmp_path)
    run(tmp_path, mirror=str(tmp_path / "mirror"))
    check_exact(tmp_path)
    check_untouched(made)


def test_a_start_from_a_mirror(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(6, crash), mirror=str(tmp_path / "mirror"))
    made = litter_all(tmp_path)
    shutil.rmtree(tmp_path / "storage")
    run(tmp_path, storage=str(tmp_path / "mirror"))
    check_exact(tmp_path)
    check_untouched({path: data for path, data in made.items() if not path.startswith(os.fsencode(tmp_path / "storage"))})


def test_a_start_from_a_savepoint(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(6, crash))
    litter_all(tmp_path)
    saved = penstock("savepoint", tmp_path / "storage", "--to", tmp_path / "saved")
    assert saved.exit_code == 0, saved.output
    made = litter(tmp_path / "saved")
    result = run(tmp_path / "another", restore_from=str(tmp_path / "saved"))
    assert result.finished
    assert 0 < result.records_in < COUNT
    check_untouched(made)


def test_every_command(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(6, crash), mirror=str(tmp_path / "mirror"))
    made = litter_all(tmp_path)
    storage = tmp_path / "storage"
    (job,) = json.loads(penstock("jobs", storage, "--json").stdout)
    assert (job["name"], job["problem"]) == ("numbers", "")
    for command in (
        ["jobs", tmp_path],
        ["epochs", storage],
        ["state", storage],
        ["lineage", storage],
        ["savepoint", storage],
        ["diff", "--output", tmp_path / "out", tmp_path / "out"],
    ):
        done = penstock(*command)
        assert done.exit_code == 0, (command, done.output, done.exception)
    litter(storage / "savepoints")
    assert penstock("lineage", storage).exit_code == 0
    run(tmp_path)
    check_exact(tmp_path)
    check_untouched(made)


def test_doctor_shows_them(tmp_path: Path) -> None:
    run(tmp_path, mirror=str(tmp_path / "mirror"))
    for place in ("storage", "mirror", "out"):
        assert stray_names(open_storage(tmp_path / place)) == [], place
    litter_all(tmp_path)
    for place in ("storage", "mirror", "out"):
        found = {os.path.basename(os.fsencode(name)) for name in stray_names(open_storage(tmp_path / place))}
        assert found >= set(NAMES), place
    done = penstock("doctor", tmp_path / "storage", "--no-spark", "--local-dir", tmp_path / "local")
    assert "not Penstock's, and passed over" in done.output
    assert done.exit_code == 0, done.output


def test_a_reader_of_the_output(tmp_path: Path) -> None:
    run(tmp_path)
    before = len(read_output(tmp_path / "out"))
    litter(tmp_path / "out")
    assert len(read_output(tmp_path / "out")) == before == COUNT
    sink = CollectSink()
    env = StreamEnvironment("reader", executor="inline", storage=str(tmp_path / "reader"), local_dir=str(tmp_path / "local"))
    env.from_source(FileSource(str(tmp_path / "out"), format="json"), name="in").sink_to(sink, name="seen")
    env.execute()
    assert len(sink.results()) == COUNT


@dataclass(frozen=True)
class Appending(WriteAheadSink):
    """Keeps what was published in files named after the epoch."""

    folder: str

    def publish(self, id: PublishId, rows: Iterator[Any]) -> None:
        Path(self.folder, f"{id.epoch}").write_text(json.dumps(list(rows)))

    def describe(self) -> str:
        return "a folder"


def test_a_write_ahead_sink_publishes_though_its_markers_are_among_other_names(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "storage" / "sinks" / "out" / "published").mkdir(parents=True)
    made = litter(tmp_path / "storage")
    env = StreamEnvironment(
        "rows", executor="inline", storage=str(tmp_path / "storage"), local_dir=str(tmp_path / "local"), max_records_per_epoch=4
    )
    env.from_collection(range(20), name="numbers").sink_to(Appending(str(tmp_path / "rows")), name="out")
    env.execute()
    published = [row for file in (tmp_path / "rows").iterdir() for row in json.loads(file.read_text())]
    assert sorted(published) == list(range(20))
    check_untouched(made)


def test_names_of_the_nearest_miss_are_not_parsed() -> None:
    right = [
        (paths.term_of, "terms/000012.json", Term(12)),
        (paths.term_of, "terms/1234567.json", Term(1234567)),
        (paths.epoch_of_manifest, "epochs/0000000007.json", Epoch(7)),
        (paths.epoch_of_done, "epochs/0000000007.done", Epoch(7)),
        (paths.epoch_of_intent, "intents/0000000007-000012.json", Epoch(7)),
        (paths.term_of_state_file, "state/s0/p1/0000000007-3-9-0-1-0.delta", Term(3)),
        (paths.term_of_state_file, "state/s0/p1/0000000007-3-c9.base", Term(3)),
        (paths.term_of_state_file, "state/s0/p1/0000000007-3-m0-1.delta", Term(3)),
        (paths.term_of_state_file, "state/imported/000004-ab-7/0-count-n.parquet", Term(4)),
        (paths.term_of_state_file, "state/imported/000004-ab-7/imported/000001-cd/s0/p0/0000000001-1-c2.base", Term(4)),
    ]
    for parse, path, number in right:
        assert parse(path) == number, path
        assert paths.is_ours(path)
        folder, _, name = path.rpartition("/")
        for near in (f"{path}.bak", f".{path}", f"{folder}/.{name}", f"{folder}/0{name}~", f"x/{path}", f"{path}/x", f"{path}\n"):
            assert parse(near) is None, near
            assert not paths.is_ours(near)
    assert paths.term_of("terms/0000012.json") is None
    assert paths.epoch_of_manifest("epochs/7.json") is None
    assert paths.epoch_of_manifest("epochs/00000000007.json") is None
    assert paths.epoch_of_manifest("epochs/" + "9" * 30 + ".json") is None


def test_what_we_write_is_ours(tmp_path: Path) -> None:
    """Requests, pins and programs by the names that they are written under."""
    run(tmp_path)
    storage = open_storage(tmp_path / "storage")
    ask(storage, "stop")
    with pin(storage, None, "test"):
        assert stray_names(storage) == []
        assert sum(paths.is_named(listed.path, paths.PINS) for listed in storage.list()) == 1
    assert sum(paths.is_named(listed.path, paths.REQUESTS) for listed in storage.list()) == 1
    assert sum(paths.is_named(listed.path, paths.PROGRAMS) for listed in storage.list()) == 1

"""The list of kept epochs: what is in it, and what it costs; in Python and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import NotFoundError
from penstock.ids import Epoch
from penstock.jobs.pins import pin
from penstock.snapshots.view.retained import KeptEpoch, list_epochs
from penstock.storage import open_storage
from tests.laws.trying import manifests, program


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Ran to its end, and went back to its fourth epoch for one more."""
    assert program(tmp_path, keep=100).execute().finished
    program(tmp_path, keep=100).execute(restore_from="@4", listener=_stop)
    return tmp_path


def _stop(record: object) -> None:
    import signal

    signal.raise_signal(signal.SIGTERM)


def listed(job: Path) -> list[KeptEpoch]:
    return list_epochs(open_storage(job / "storage"))


def test_what_is_known_of_each(job: Path) -> None:
    found = listed(job)
    committed = manifests(job)
    assert [kept.epoch for kept in found] == [m.epoch for m in committed]
    assert all(kept.done and not kept.problem for kept in found)
    assert [kept.records for kept in found] == [0, *[20] * 15, 0, 20]
    assert [kept.finished for kept in found] == [False] * 15 + [True, False, False]
    marks = {kept.epoch: kept.restored_from for kept in found if kept.restored_from}
    assert marks == {17: f"{open_storage(job / 'storage').uri}@4"}
    assert found[-1].parent == 17
    assert found[-2].parent == 4


def test_own_and_shared_state(job: Path) -> None:
    """Each file is either one epoch's own, or shared by several: together they are all there is."""
    found = listed(job)
    named = [{ref.name for stage in m.state.chains for chain in stage for ref in chain} for m in manifests(job)]
    for number, kept in enumerate(found):
        others = set().union(*named[:number], *named[number + 1 :])
        own = sum((job / "storage" / name).stat().st_size for name in named[number] - others)
        shared = sum((job / "storage" / name).stat().st_size for name in named[number] & others)
        assert (kept.own_bytes, kept.shared_bytes) == (own, shared)
    assert found[-1].own_bytes > 0


def test_what_cannot_be_read_is_said(job: Path) -> None:
    path = job / "storage" / "epochs" / "0000000003.json"
    path.write_bytes(path.read_bytes()[:100])
    (job / "storage" / "epochs" / "0000000018.done").unlink()
    with pin(open_storage(job / "storage"), Epoch(5), "test"):
        found = {kept.epoch: kept for kept in listed(job)}
    assert "damaged" in found[Epoch(3)].problem
    assert not found[Epoch(18)].done
    assert [epoch for epoch, kept in found.items() if kept.pinned] == [5]
    with pytest.raises(NotFoundError, match="holds no job"):
        list_epochs(open_storage(job / "out"))


def test_the_command(job: Path) -> None:
    shown = CliRunner().invoke(app, ["epochs", str(job / "storage")], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "went back to epoch 4" in shown.output
    assert "finished" in shown.output
    found = json.loads(CliRunner().invoke(app, ["epochs", str(job / "storage"), "--json"]).stdout)
    assert found == [kept.describe() for kept in listed(job)]
    nothing = CliRunner().invoke(app, ["epochs", str(job / "out")])
    assert nothing.exit_code == 1
    assert "holds no job" in nothing.output


PROGRAM = """
import sys
from penstock import FileSink, GeneratorSource, StreamEnvironment

env = StreamEnvironment("numbers", executor="inline", parallelism=2, max_records_per_epoch=20, keep=50)
numbers = env.from_source(GeneratorSource(int, count=100), name="numbers")
numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b, name="sums").sink_to(FileSink(sys.argv[1]), name="out")
env.execute()
"""


def test_run_says_what_it_starts_from(tmp_path: Path) -> None:
    app_py = tmp_path / "numbers_app.py"
    app_py.write_text(PROGRAM)

    def run(job: str, *options: str) -> str:
        arguments = ["run", str(app_py), str(tmp_path / f"out-{job}"), "--storage", str(tmp_path / job), *options]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        return done.output

    run("first")
    told = run("second", "--from", f"{tmp_path / 'first'}@3", "--parallelism", "3")
    assert "numbers: starts from file://" in told
    assert "files, at most 14 entries: sums." in told
    assert "source numbers: resumes from {'next': 40" in told
    assert "of state" in told
    again = run("second", "--from", f"{tmp_path / 'first'}@3")
    assert "resumes from its newest epoch" in again
    assert "--again starts from there once more" in again
    assert "records in, out" in run("second", "--from", f"{tmp_path / 'first'}@3", "--again")
    refused = CliRunner().invoke(
        app, ["run", str(app_py), str(tmp_path / "o"), "--storage", str(tmp_path / "third"), "--from", "x@9"]
    )
    assert refused.exit_code == 1
    assert "holds no job" in refused.output

"""Stored bytes are unpickled where the program, or the operator, asks for it; a stored schema alone does not."""

from __future__ import annotations

import ast
import base64
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import ValueState, snapshots
from penstock.connectors.staging.volatile import CommittedOnce
from penstock.errors import CorruptFileError, StateError
from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.state.encoding.codecs import PICKLE
from penstock.storage import open_storage
from tests.security.hostile import Keeping, Trap, forge_manifest, forge_savepoint, keeping, newest_manifest, penstock

ROOT = Path(__file__).parents[2]


class Job:
    """A job whose stored state is pickled, and touches a file when it is unpickled."""

    def __init__(self, top: Path) -> None:
        self.storage = top / "job"
        self.marker = top / "marker"
        keeping(self.storage, self.pickling()).execute()
        self.marker.unlink(missing_ok=True)

    def pickling(self) -> Keeping:
        return Keeping(ValueState(object, codec=PICKLE), lambda n: Trap(self.marker))

    def migrating(self) -> Keeping:
        """A program without any pickle."""
        return Keeping(ValueState(int, migrate=lambda old: 1))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_stored_schema_does_not_make_a_program_unpickle(job: Job) -> None:
    env = keeping(job.storage, job.migrating(), count=8)
    with pytest.raises(StateError, match=r"kept by pickle would be loaded from .*: step\.held") as caught:
        env.execute()
    assert "--trust" in caught.value.hint
    assert not job.marker.exists()
    done = penstock("check", program_file(job), "--against", job.storage)
    assert "kept by pickle would be loaded" in done.output, done.output
    assert not job.marker.exists()
    env.execute(trust=True)
    assert job.marker.exists()


def program_file(job: Job) -> Path:
    """The program without pickle, as a file."""
    path = job.storage.parent / "program.py"
    path.write_text(
        "from penstock import ValueState\n"
        "from tests.security.hostile import Keeping, keeping\n"
        f"keeping({str(job.storage)!r}, Keeping(ValueState(int, migrate=lambda old: 1))).execute()\n"
    )
    return path


def test_nor_from_a_savepoint_or_another_job(job: Job, tmp_path: Path) -> None:
    make_savepoint(open_storage(job.storage), to=str(tmp_path / "savepoint"))
    for source in (str(tmp_path / "savepoint"), f"{job.storage}@latest"):
        for function in (job.migrating(), job.pickling()):
            with pytest.raises(StateError, match="kept by pickle would be loaded"):
                keeping(tmp_path / "new", function).execute(restore_from=source)
    assert not job.marker.exists()


def test_nor_under_another_name_for_pickle(job: Job, tmp_path: Path) -> None:
    """What is loaded is what the program's codec loads, whatever the stored schema calls it."""
    make_savepoint(open_storage(job.storage), to=str(tmp_path / "savepoint"))

    def disguised(info: Any) -> Any:
        states = [
            msgspec.structs.replace(
                one, info=msgspec.structs.replace(one.info, schema={"constrained": {"pickle": True}, "by": {"x": 1}})
            )
            if one.info.name == "held"
            else one
            for one in info.states
        ]
        return msgspec.structs.replace(info, states=states)

    forge_savepoint(tmp_path / "savepoint", disguised)
    with pytest.raises(StateError):
        keeping(tmp_path / "new", job.pickling()).execute(restore_from=str(tmp_path / "savepoint"))
    assert not job.marker.exists()


def test_a_program_that_asks_for_pickle_trusts_its_own_storage(job: Job) -> None:
    class Reading(Keeping):
        def process(self, record: Any, ctx: Any) -> list[Any]:
            return [record if self.held.value is None else 0]

    keeping(job.storage, Reading(ValueState(object, codec=PICKLE)), count=8).execute()
    assert job.marker.exists()


def test_a_replay_unpickles_only_with_trust(job: Job) -> None:
    for function in (job.pickling(), job.migrating()):
        with pytest.raises(StateError, match="kept by pickle would be loaded"):
            snapshots.replay(job.storage, "latest", env=keeping(job.storage, function))
    assert not job.marker.exists()
    snapshots.replay(job.storage, "latest", env=keeping(job.storage, job.pickling()), trust=True, step="step")
    assert job.marker.exists()


def test_tools_do_not_unpickle(job: Job, tmp_path: Path) -> None:
    savepoint = tmp_path / "savepoint"
    assert penstock("savepoint", job.storage, "--to", savepoint).exit_code == 0
    for arguments in (
        ["state", job.storage],
        ["state", job.storage, "step", "held"],
        ["state", job.storage, "step", "held", "1"],
        ["state", savepoint, "step", "held", "--json"],
        ["diff", savepoint, job.storage],
        ["savepoint-rewrite", savepoint, "--to", tmp_path / "rewritten", "--max-parallelism", "8"],
        ["jobs", tmp_path],
        ["epochs", job.storage],
        ["lineage", job.storage],
        ["replay", job.storage],
    ):
        done = penstock(*arguments)
        assert done.exit_code in (0, 1), done.output
        assert done.exception is None or isinstance(done.exception, SystemExit), done.output
        assert not job.marker.exists(), arguments
    with snapshots.read(str(savepoint)) as found:
        assert len(found.state("step", "held").to_arrow()) == 2
    assert not job.marker.exists()


def test_a_manifest_brings_no_output_that_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, marker = tmp_path / "job", tmp_path / "marker"
    keeping(storage, Keeping(ValueState(int))).execute()
    pickled = base64.b64encode(pickle.dumps(([Trap(marker)], 1))).decode()
    forge_manifest(storage, lambda whole: whole["committables"].update(out=[pickled]))
    newest_manifest(storage).with_suffix(".done").unlink()
    monkeypatch.setattr("penstock.connectors.printing.sink._PRINTED", CommittedOnce())  # a process that has printed nothing yet
    with pytest.raises(CorruptFileError, match="holds output of a sink that keeps none"):
        keeping(storage, Keeping(ValueState(int)), count=8).execute()
    assert not marker.exists()


# --- the list of SECURITY.md ------------------------------------------------------------------------------------------------


def unpicklers() -> set[str]:
    """The modules that can unpickle something."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("loads", "load", "Unpickler")
                and isinstance(node.value, ast.Name)
            ) and node.value.id in ("pickle", "cloudpickle", "marshal", "dill", "shelve", "joblib"):
                found.add(str(path.relative_to(ROOT / "src" / "penstock")))
    return found


def test_every_place_that_unpickles_is_listed() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    section = text.partition("## Where bytes are unpickled")[2].partition("\n## ")[0]
    listed = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}
    assert listed == unpicklers()


def test_a_trap_is_a_trap(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "marker")))
    assert (tmp_path / "marker").exists()

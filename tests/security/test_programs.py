"""What `penstock replay` runs of what a storage names: nothing that the operator does not have, or has not given."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import snapshots
from penstock.compile.programs import file_hash
from penstock.errors import ConfigError
from penstock.snapshots.replay.whose_program import PLAIN_SETTINGS
from tests.security.hostile import forge_program, penstock

PROGRAM = """
import os
import sys
from pathlib import Path

from penstock import StreamEnvironment

Path({seen!r}).write_text(os.getcwd() + chr(10) + " ".join(sys.argv[1:]))
env = StreamEnvironment("numbers", executor="inline", parallelism=1, storage={storage!r})
env.from_collection(range(10)).key_by(lambda n: n % 3).reduce(lambda a, b: a + b, name="sums").print(name="out")
env.execute()
"""
EVIL = "from pathlib import Path\nPath({marker!r}).touch()\n"


class Desk:
    """An operator's folder with a program, and the job that it has run, in a storage that others can write to."""

    def __init__(self, top: Path) -> None:
        self.folder = top / "work"
        self.program = self.folder / "app.py"
        self.storage = self.folder / "jobs" / "numbers"
        self.elsewhere = top / "elsewhere"
        self.marker = top / "marker"
        self._seen = top / "seen"
        self.folder.mkdir()
        self.elsewhere.mkdir()
        self.program.write_text(PROGRAM.format(seen=str(self._seen), storage=str(self.storage)))

    def run(self, *arguments: str) -> None:
        done = penstock("run", self.program, "--", *arguments)
        assert done.exit_code == 0, done.output
        self._seen.unlink()

    def evil(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(EVIL.format(marker=str(self.marker)) + self.program.read_text())
        return path

    def seen(self) -> list[str]:
        """Where the program was run, and with what arguments."""
        return self._seen.read_text().split("\n")

    def names(self, path: Path, **changes: Any) -> None:
        """The storage names this file, and its hash."""
        forge_program(self.storage, path=str(path), files={path.name: file_hash(str(path))}, **changes)

    def refuses(self, *options: Any) -> str:
        done = penstock("replay", f"{self.storage}@2", *options)
        assert done.exit_code == 1, done.output
        assert not self.marker.exists()
        assert not self._seen.exists()
        return done.stderr


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk(tmp_path)
    monkeypatch.chdir(desk.folder)
    return desk


def test_a_program_that_only_the_storage_names_is_not_run(desk: Desk) -> None:
    desk.run()
    desk.names(desk.evil(desk.elsewhere / "app.py"))
    shown = desk.refuses()
    assert "the program that the storage names is not run unasked" in shown
    assert "--app APP.py" in shown
    assert penstock("replay", f"{desk.storage}@2", "--app", desk.program).exit_code == 0
    assert not desk.marker.exists()
    done = penstock("replay", f"{desk.storage}@2", "--trust")
    assert done.exit_code == 0, done.output
    assert desk.marker.exists()


def test_nor_one_in_the_storage_itself(desk: Desk) -> None:
    desk.run()
    desk.names(desk.evil(desk.storage / "app.py"))
    assert "not run unasked" in desk.refuses()
    outside = desk.evil(desk.elsewhere / "linked.py")  # nor by a link to another place
    (desk.folder / "linked.py").symlink_to(outside)
    forge_program(desk.storage, path=str(desk.folder / "linked.py"), files={"linked.py": file_hash(str(outside))})
    assert "not run unasked" in desk.refuses()


def test_nor_one_that_others_can_write(desk: Desk) -> None:
    desk.run()
    desk.program.chmod(0o666)
    assert "not run unasked" in desk.refuses()


def test_the_operators_own_program_is_run_if_it_is_what_was_recorded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.run()
    assert "reproduced exactly" in penstock("replay", f"{desk.storage}@2").stdout
    forge_program(desk.storage, path="/home/somebody/work/app.py", folder="/home/somebody/work")  # run on another machine
    assert "reproduced exactly" in penstock("replay", f"{desk.storage}@2").stdout
    assert desk.seen()[0] == str(desk.folder)
    desk._seen.unlink()
    desk.program.write_text(desk.program.read_text() + "# mended\n")
    assert "--app APP.py" in desk.refuses()
    done = penstock("replay", f"{desk.storage}@2", "--app", "app.py")
    assert "replayed with today's program: app.py changed since" in done.stdout


def test_arguments_come_from_the_operator(desk: Desk) -> None:
    desk.run("--kind", "a b")
    shown = desk.refuses()
    assert "the arguments that the storage names are not given to your program unasked" in shown
    assert f"penstock replay {desk.storage}@2 -- --kind 'a b'" in shown
    assert "not given to your program unasked" in desk.refuses("--app", "app.py")
    done = penstock("replay", f"{desk.storage}@2", "--", "--kind", "c")
    assert done.exit_code == 0, done.output
    assert desk.seen()[1] == "--kind c"
    assert penstock("replay", f"{desk.storage}@2", "--trust").exit_code == 0
    assert desk.seen()[1] == "--kind a b"
    with pytest.raises(ConfigError, match="not given to your program"):
        snapshots.replay(desk.storage, 2)
    assert snapshots.replay(desk.storage, 2, arguments=[]).reproduced


@pytest.mark.parametrize("where", ["elsewhere", "storage"])
def test_the_working_directory_is_the_operators(desk: Desk, where: str) -> None:
    desk.run()
    forge_program(desk.storage, folder=str(getattr(desk, where)))
    assert penstock("replay", f"{desk.storage}@2").exit_code == 0
    assert desk.seen()[0] == str(desk.folder)


def test_a_folder_between_the_current_one_and_the_program_may_be_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.run()
    monkeypatch.chdir(desk.folder.parent)
    assert penstock("replay", f"{desk.storage}@2").exit_code == 0
    assert desk.seen()[0] == str(desk.folder)


def test_a_module_that_only_the_storage_names_is_not_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.run()
    desk.evil(desk.elsewhere / "evil_module.py")
    monkeypatch.syspath_prepend(desk.elsewhere)
    forge_program(desk.storage, module="evil_module")
    desk.refuses()
    forge_program(desk.storage, module="app")
    done = penstock("replay", f"{desk.storage}@2")
    assert done.exit_code == 0, done.output


def test_recorded_settings_give_no_trust_and_name_no_place(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.run()
    forge_program(desk.storage, settings={"trust": True, "master": "spark://evil:7077", "storage": "/evil", "parallelism": 3})
    desk.program.write_text(desk.program.read_text().replace("env.execute()", "print('SETTINGS', env.config)\nenv.execute()"))
    done = penstock("replay", f"{desk.storage}@2", "--app", "app.py")
    settings = done.stdout.partition("SETTINGS")[2].partition("\n")[0]
    assert "trust=False" in settings
    assert "master=None" in settings
    assert f"storage='file://{desk.storage}'" in settings
    assert "parallelism=3" in settings
    assert PLAIN_SETTINGS.keys() == {"name", "parallelism", "guarantee", "state_store"}


def test_the_path_of_imports_is_not_the_storages(desk: Desk) -> None:
    before = list(sys.path)
    desk.run()
    (desk.storage / "penstock_planted.py").write_text(EVIL.format(marker=str(desk.marker)))
    desk.program.write_text(
        desk.program.read_text().replace(
            "env.execute()", "try:\n    import penstock_planted\nexcept ImportError:\n    pass\nenv.execute()"
        )
    )
    forge_program(desk.storage, folder=str(desk.storage))
    assert penstock("replay", f"{desk.storage}@2", "--app", "app.py").exit_code == 0
    assert not desk.marker.exists()
    assert sys.path == before
    assert os.getcwd() == str(desk.folder)

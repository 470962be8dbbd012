"""`penstock replay`, on a program that was run by `penstock run` and as a script: what it shows, records, and stops at."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import app
from penstock.compile.in_process import within
from penstock.compile.programs import Program, find_program, read_program, running
from penstock.errors import CorruptFileError
from penstock.jobs.manifest import load_manifest
from penstock.snapshots import replayable
from penstock.storage import open_storage
from penstock.testing import replay_recorded
from tests.snapshots import shop

SHOP = Path(shop.__file__)
ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"


def penstock(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def in_a_process(*arguments: Any, typed: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with what somebody types."""
    return subprocess.run(
        [sys.executable, "-c", "from penstock.cli import main; main()", *map(str, arguments)],
        input=typed,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "COLUMNS": "100"},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("jobs") / "job"
    done = penstock("run", SHOP, storage, "--", "--orders", "30")
    assert done.exit_code == 0, done.output
    return storage


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("jobs") / "failing"
    done = penstock("run", SHOP, storage, "--", "--broken", "26")
    assert done.exit_code == 1
    assert f"to look into it: penstock replay {storage}@next --pdb" in done.stderr
    return storage


def steady(text: str, storage: Path) -> str:
    """Output without what differs from run to run."""
    text = re.sub(r"shop\.py:\d+", "shop.py:1", text.replace(str(storage), "JOB").replace(str(SHOP.parent), "FOLDER"))
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", "2026-01-01 00:00:00.000", text)
    return re.sub(r"\b[0-9a-f]{16}\b", "0123456789abcdef", text)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list", ["{job}"]),
        ("summary", ["{job}@4", "--trust"]),
        ("step", ["{job}@4", "--step", "reminders", "--limit", "4", "--trust"]),
        ("key", ["{job}@4", "--step", "reminders", "--key", "ann", "--trust"]),
        ("windows", ["{job}@5", "--step", "sessions", "--key", "ann", "--trust"]),
        ("columns", ["{job}@5", "--step", "columns", "--trust"]),
        ("next", ["{failing}@next", "--trust"]),
        ("next_step", ["{failing}@next", "--step", "reminders", "--trust"]),
        ("refused", ["{job}@40"]),
    ],
)
def test_what_is_shown(job: Path, failing: Path, name: str, arguments: list[str]) -> None:
    done = penstock("replay", *(argument.format(job=job, failing=failing) for argument in arguments))
    assert done.exit_code == (1 if name in ("next", "next_step", "refused") else 0), done.output
    shown = steady(steady(done.output, job), failing)
    path = GOLDEN / f"replay_{name}.txt"
    if os.environ.get("PENSTOCK_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


def test_json(job: Path) -> None:
    data = json.loads(penstock("replay", f"{job}@4", "--trust", "--step", "reminders", "--json").stdout)
    assert data["verdict"] == {"reproduced": True, "entries": data["verdict"]["entries"], "differences": [], "more": 0}
    steps = {step["step"]: step for step in data["steps"]}
    assert steps["reminders"]["records_in"] == 5
    first = steps["reminders"]["events"][0]
    assert first["value"]["$record"] == "__main__:Order"
    assert first["key"] == first["value"]["fields"]["customer"]
    assert steps["tax"]["events"] == []
    assert [one["epoch"] for one in json.loads(penstock("replay", job, "--json").stdout)] == [2, 3, 4, 5, 6, 7]


def test_a_recorded_case_of_a_main_program(job: Path, tmp_path: Path) -> None:
    done = penstock("replay", f"{job}@4", "--trust", "--step", "reminders", "--record", tmp_path / "case.json")
    assert done.exit_code == 0, done.output
    assert "recorded as a test case" in done.stdout
    assert replay_recorded(tmp_path / "case.json", shop.Reminder())


# --- the debugger --------------------------------------------------------------------------------------------------------------


def test_stopping_at_a_record(job: Path) -> None:
    typed = "p order.customer, self.basket.value.total > 0\nb with_tax\nn\nw\nc\n"
    done = in_a_process("replay", f"{job}@4", "--trust", "--step", "reminders", "--key", "ann", "--pdb", typed=typed)
    assert done.returncode == 0, done.stderr
    assert "step 'reminders', record #" in done.stdout
    assert "key 'ann'" in done.stdout
    assert "state basket = Basket(" in done.stdout
    assert "-> if order.price < 0:" in done.stdout
    assert "('ann', True)" in done.stdout
    assert "reproduced exactly" in done.stdout


def test_stopping_where_it_raises_and_right_before_it(failing: Path) -> None:
    done = in_a_process("replay", f"{failing}@next", "--trust", "--pdb", typed="p order.price\nq\n")
    assert "-> raise ValueError" in done.stdout
    assert "-1.1" in done.stdout.partition("-> raise ValueError")[2]
    assert "ended in the debugger" in done.stderr
    shown = penstock("replay", f"{failing}@next", "--trust").stdout
    hint = re.search(r"to stop right before it: (.*)", shown)
    assert hint is not None
    done = in_a_process("replay", f"{failing}@next", "--trust", *hint[1].split(), typed="p order.price\nc\nc\n")
    assert "-> if order.price < 0:" in done.stdout
    assert "(Pdb) -1.1" in done.stdout
    assert "-> raise ValueError" in done.stdout


def test_breakpoints_are_met_on_later_records(job: Path) -> None:
    typed = "b FILE:LINE\nc\np 'again', order.item\ncl 1\nc\n"
    line = next(n for n, text in enumerate(SHOP.read_text().splitlines(), 1) if "self.items.add(order.item)" in text)
    typed = typed.replace("FILE", str(SHOP)).replace("LINE", str(line))
    done = in_a_process("replay", f"{job}@4", "--trust", "--step", "reminders", "--pdb", typed=typed)
    assert "-> self.items.add(order.item)" in done.stdout
    assert "('again'," in done.stdout


def test_the_debugger_steps_over_penstock(job: Path) -> None:
    """reduce, fold: the first stop is in the user's own function."""
    for step, line in (("dearest", "-> return max(left, right"), ("minutes", "-> minutes.fold(0, lambda n, _: n + 1")):
        done = in_a_process("replay", f"{job}@4", "--trust", "--step", step, "--pdb", typed="c\n")
        assert line in done.stdout, done.stdout + done.stderr


def test_where_there_is_nothing_to_stop_in(job: Path) -> None:
    assert "name a step to stop at its first record" in in_a_process("replay", f"{job}@4", "--trust", "--pdb").stderr
    assert "no function of yours was called" in in_a_process("replay", f"{job}@4", "--trust", "--step", "columns", "--pdb").stderr
    assert "do not go together" in penstock("replay", f"{job}@4", "--trust", "--pdb", "--json").stderr


# --- programs ------------------------------------------------------------------------------------------------------------------


def recorded_program(storage: Path) -> Program:
    opened = open_storage(storage)
    manifest = load_manifest(opened, replayable(opened)[-1].epoch)
    found = find_program(opened, manifest.program)
    assert found is not None
    return found


def test_the_program_is_recorded(job: Path, tmp_path: Path) -> None:
    program = recorded_program(job)
    assert program.path == str(SHOP)
    assert program.arguments == [str(job), "--orders", "30"]
    assert program.folder == os.getcwd()
    assert "shop.py" in program.files
    assert program.changed() == []
    subprocess.run(
        [sys.executable, str(SHOP), str(tmp_path / "job")], env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True
    )
    script = recorded_program(tmp_path / "job")
    assert list(script.files) == ["shop.py"]
    assert (script.path, script.files["shop.py"], script.plan) == (program.path, program.files["shop.py"], program.plan)
    assert script.hash != program.hash  # its arguments are others
    assert penstock("replay", f"{tmp_path / 'job'}@3", "--", tmp_path / "job").exit_code == 0


PROGRAM = """
import beside
from penstock import StreamEnvironment

env = StreamEnvironment("numbers", executor="inline", parallelism=2, storage="job")
env.from_collection(range(10)).map(beside.times).key_by(lambda n: n % 3).reduce(lambda a, b: a + b, name="sums").print(name="out")
env.execute()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "beside.py").write_text("def times(n):\n    return 2 * n\n")
    (tmp_path / "app.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    assert penstock("run", "app.py").exit_code == 0
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    return tmp_path


def test_a_changed_module_is_told_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(recorded_program(folder / "job").files) == ["app.py", "beside.py"]
    monkeypatch.chdir("/")
    assert "reproduced exactly" in penstock("replay", f"{folder / 'job'}@2").stdout  # in the folder it was run in
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    (folder / "beside.py").write_text("def times(n):\n    return 3 * n\n")
    done = penstock("replay", f"{folder / 'job'}@2")
    assert done.exit_code == 1
    assert "note: replayed with today's program: beside.py changed since" in done.stdout
    assert "not reproduced: it comes out differently the second time" in done.stdout
    assert "step sums" in done.stdout
    monkeypatch.delitem(sys.modules, "beside", raising=False)


def test_a_program_that_has_moved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "moved").mkdir()
    for name in ("app.py", "beside.py"):
        (folder / name).rename(folder / "moved" / name)
    done = penstock("replay", "job@2")
    assert done.exit_code == 1
    assert "is not there any more" in done.stderr
    done = penstock("replay", "job@2", "--app", "moved/app.py")
    assert done.exit_code == 0, done.output
    assert "note" not in done.stdout
    monkeypatch.delitem(sys.modules, "beside", raising=False)


def test_a_damaged_record(folder: Path) -> None:
    (path,) = (folder / "job" / "programs").glob("*.json")
    path.write_bytes(path.read_bytes().replace(b"app.py", b"apq.py"))
    with pytest.raises(CorruptFileError, match="checksum does not match"):
        read_program(open_storage(folder / "job"), path.stem)
    assert "--app" in penstock("replay", "job@2").stderr


def test_a_program_that_catches_everything(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from penstock import StreamEnvironment\n"
        "env = StreamEnvironment('x', executor='inline')\n"
        "env.from_collection([1]).print()\n"
        "try:\n    env.execute(parallelism=3)\nexcept Exception:\n    pass\n"
    )
    found = within(lambda env: (env.config.parallelism, running(env.graph).path), str(tmp_path / "app.py"), [])
    assert found == (3, str(tmp_path / "app.py"))
    with pytest.raises(ZeroDivisionError):
        within(lambda env: 1 // 0, str(tmp_path / "app.py"), [])

"""`penstock check`: what becomes of each state and source, before anything runs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import app
from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.storage import open_storage

GOLDEN = Path(__file__).parents[1] / "golden" / "check.txt"

HEAD = """
from dataclasses import dataclass
from penstock import *
from penstock.testing import ScriptedSource

env = StreamEnvironment("visits", executor="inline", parallelism=2, until_idle=True)
rows = [{"page": f"p{n % 5}", "user": f"u{n % 3}", "n": n} for n in range(20)]
"""

FIRST = """
@dataclass
class Visit:
    page: str
    zip: int
    gone: int = 0

class Visits(KeyedProcessFunction):
    last = ValueState(Visit)
    wide = ValueState(int, default=0)
    odd = ValueState(int, default=0)
    pages = MapState(str, int)
    kind = ListState(int)
    ttl = ValueState(int, default=0)
    left = ValueState(int, default=0)

    def process(self, row, ctx):
        self.last.update(Visit(row["page"], row["n"]))
        self.wide.update(row["n"])

env.from_source(ScriptedSource(rows, cut=5), name="in").key_by("user").process(Visits(), name="visits").print()
env.from_source(ScriptedSource(rows, cut=5), name="old-in").key_by("user").sum("n", name="sums").print()
env.execute()
"""

SECOND = """
from datetime import timedelta

@dataclass
class Visit:
    page: str | None
    postcode: int
    added: int = 0

class Visits(KeyedProcessFunction):
    last = ValueState(Visit, aliases={"zip": "postcode"})
    wide = ValueState(float, default=0.0)
    odd = ValueState(str, default="")
    pages = MapState(int, int)
    kind = ValueState(int)
    ttl = ValueState(int, default=0, ttl=timedelta(hours=1))
    fresh = ValueState(int)

    def process(self, row, ctx):
        pass

env.from_source(ScriptedSource(rows), name="in").key_by("user").process(Visits(), name="visits").print()
new = env.from_source(ScriptedSource(rows), name="new-in", previous_names=("old-in",))
new.key_by("page").sum("n", name="totals", previous_names=("sums",)).print()
env.from_source(ScriptedSource(rows), name="another-in").print()
env.execute()
"""

MENDED = (
    SECOND.replace('key_by("page")', 'key_by("user")')
    .replace('odd = ValueState(str, default="")', 'odd = ValueState(str, default="", migrate=str)')
    .replace("pages = MapState(int, int)", "pages = MapState(str, int)")
    .replace("kind = ValueState(int)", "kind = ListState(int)")
    .replace("fresh = ", "left = ")
)


def penstock(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "160"})


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    for name, text in (("first", FIRST), ("second", SECOND), ("mended", MENDED)):
        (folder / f"{name}.py").write_text(HEAD + text)
    done = penstock("run", folder / "first.py", "--storage", folder / "job")
    assert done.exit_code == 0, done.output
    make_savepoint(open_storage(folder / "job"), to=str(folder / "savepoint"))
    return folder


def test_the_report_is_the_golden_one(job: Path) -> None:
    done = penstock("check", job / "second.py", "--against", job / "job")
    assert done.exit_code == 1
    shown = re.sub(r"(?m)[ \t]+$", "", done.stdout.replace(str(job), "FOLDER"))
    if os.environ.get("PENSTOCK_WRITE_GOLDEN"):
        GOLDEN.write_text(shown)
    assert shown == GOLDEN.read_text()


@pytest.mark.parametrize("against", ["job", "job@latest", "job@4", "savepoint"])
def test_as_data(job: Path, against: str) -> None:
    done = penstock("check", job / "second.py", "--against", job / against, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["refused"]
    assert {f"{one['step']}.{one['state']}": one["verdict"] for one in found["states"]} == {
        "visits.last": "migrates",
        "visits.wide": "compatible",
        "visits.odd": "incompatible",
        "visits.pages": "incompatible",
        "visits.kind": "incompatible",
        "visits.ttl": "migrates",
        "visits.fresh": "new",
        "totals.result": "incompatible",
        "visits.left": "dropped",
    }
    assert {one["step"]: one["verdict"] for one in found["sources"]} == {"in": "kept", "new-in": "kept", "another-in": "added"}
    assert len(found["problems"]) == 5


def test_what_is_said_is_what_happens(job: Path, tmp_path: Path) -> None:
    """A program that is refused is refused when it runs, one that is not runs, and looking has changed nothing."""
    before = sorted(str(path) for path in (job / "job").rglob("*"))
    mended = penstock("check", job / "mended.py", "--against", job / "savepoint")
    assert mended.exit_code == 0, mended.output
    assert "the program can resume from there" in mended.stdout
    assert sorted(str(path) for path in (job / "job").rglob("*")) == before
    told = json.loads(penstock("check", job / "second.py", "--against", job / "savepoint", "--json").stdout)["problems"]
    for program, code, problems in (("second", 1, told), ("mended", 0, [])):
        done = penstock("run", job / f"{program}.py", "--storage", tmp_path / program, "--from", job / "savepoint")
        assert done.exit_code == code, done.output
        assert [one for one in problems if one.partition(" (")[0] not in done.output] == []


def test_dropped_state_may_be_allowed(job: Path) -> None:
    (job / "fewer.py").write_text(HEAD + MENDED.replace("    left = ValueState(int)\n", ""))
    assert penstock("check", job / "fewer.py", "--against", job / "job").exit_code == 1
    assert penstock("check", job / "fewer.py", "--against", job / "job", "--allow-dropped-state").exit_code == 0


def test_nothing_to_compare_with(job: Path, tmp_path: Path) -> None:
    done = penstock("check", job / "second.py", "--against", tmp_path)
    assert done.exit_code == 1
    assert "holds neither a savepoint nor a job" in done.stderr
    done = penstock("check", job / "second.py", "--against", job / "job@77")
    assert done.exit_code == 1

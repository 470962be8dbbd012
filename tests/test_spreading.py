"""Workers: what belongs together stays together, and nobody shares a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

CONFTEST = "from tests.conftest import pytest_collection_modifyitems, pytest_unconfigure, pytest_xdist_make_scheduler\n"

TOGETHER = """
import json, os, tempfile, time
from pathlib import Path
import pytest
from penstock.state.stores.local import default_root

@pytest.fixture(scope="module")
def made():
    return os.getpid()

def note(name):
    told = {"worker": os.environ["PYTEST_XDIST_WORKER"], "temporary": tempfile.gettempdir(), "stores": default_root()}
    Path(os.environ["NOTES"], name).write_text(json.dumps(told))
    time.sleep(0.2)

@pytest.mark.parametrize("n", range(5))
def test_together(made, n):
    note(f"together-{n}")
"""

ALONE = """
@pytest.mark.parametrize("n", range(10))
def test_alone(n):
    note(f"alone-{n}")
"""


def test_workers(tmp_path: Path) -> None:
    notes, suite = tmp_path / "notes", tmp_path / "suite"
    notes.mkdir()
    suite.mkdir()
    (suite / "conftest.py").write_text(CONFTEST)
    (suite / "test_sample.py").write_text(TOGETHER + ALONE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    where = ["-p", "no:cacheprovider", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), str(suite)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", *where],
        cwd=ROOT,
        env={**environment, "NOTES": str(notes)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "15 passed" in done.stdout, done.stdout + done.stderr
    told = {path.name: json.loads(path.read_text()) for path in notes.iterdir()}
    assert len({told[f"together-{n}"]["worker"] for n in range(5)}) == 1
    places = {(one["worker"], one["temporary"], one["stores"]) for one in told.values()}
    assert len(places) == len({worker for worker, _, _ in places}) == 2
    assert len({temporary for _, temporary, _ in places}) == len({stores for _, _, stores in places}) == 2
    assert not any(os.path.exists(temporary) for _, temporary, _ in places)  # nothing is left

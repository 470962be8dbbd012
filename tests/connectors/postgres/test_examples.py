"""The examples that need a database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.connectors.postgres.tables import content
from tests.servers.postgres import PostgresServer

EXAMPLES = Path(__file__).parents[3] / "examples" / "postgres"


def test_every_example_is_tested_and_in_the_table() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"files_into_table"}
    assert "(postgres/files_into_table.py)" in (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")


def test_files_into_table(postgres: PostgresServer, tmp_path: Path) -> None:
    bought = [("ann", 100), ("bob", 7), ("ann", 11)]
    for number, (customer, cents) in enumerate(bought):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"customer": customer, "cents": cents}) + "\n")
    program = "import runpy, sys; from penstock.compile.in_process import RunOptions, applied\n"
    program += "with applied(RunOptions(settings={'executor': 'inline', 'parallelism': 2})):\n"
    example = str(EXAMPLES / "files_into_table.py")
    program += f"    sys.argv[1:] = [{str(tmp_path / 'in')!r}]; runpy.run_path({example!r}, run_name='__main__')\n"
    environment = {**os.environ, "PENSTOCK_POSTGRES": postgres.dsn}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 purchases\n"
    assert sorted(content(postgres, "purchases", "customer, cents")) == sorted(bought)
    assert content(postgres, "totals", "customer, cents", "customer") == [("ann", 111), ("bob", 7)]

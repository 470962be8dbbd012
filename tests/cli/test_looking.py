"""`penstock state`, `diff` and `savepoint-rewrite`."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock import snapshots
from penstock.cli import app
from tests.compat.test_key_hash import OLD
from tests.snapshots.shops import run_some, save

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("looking")
    job = run_some(folder, max_parallelism=8)
    a = save(job, folder / "a")
    with snapshots.edit(a) as edit:
        edit.state("ledger", "orders").put([{"key": "shop-1", "value": 0}, {"key": "new", "value": 1}])
        edit.state("ledger", "orders").remove("shop-2")
        edit.state("ledger", "items").map(lambda row: None if row["key"] == "shop-5" and row["map_key"] == "item-1" else row)
        edit.move_source("orders", [0])
        b = edit.write(str(folder / "b")).uri
    return {"job": job, "a": a, "b": b, "folder": str(folder)}


def penstock(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, [str(argument) for argument in arguments])


def golden(name: str, places: dict[str, str], *arguments: object) -> None:
    """The same text as before, but for the folder."""
    done = penstock(*arguments)
    assert done.exit_code == 0, done.output
    text = done.stdout.replace(places["folder"], "FOLDER")
    text = re.sub(r"(?m)[ \t]+$", "", re.sub(r"\d+(\.\d+)? [KMG]?B", lambda size: "SIZE".rjust(len(size[0])), text))
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("PENSTOCK_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_states(places: dict[str, str]) -> None:
    golden("state-states", places, "state", places["job"])
    golden("state-entries", places, "state", f"{places['job']}@5", "ledger", "items", "--limit", 4, "--skip", 2)
    golden("state-key", places, "state", places["a"], "ledger", "best", "shop-7")
    golden("state-timers", places, "state", places["a"], "ledger", "timers:event", "shop-7")
    golden("state-windows", places, "state", places["b"], "hourly", "slices", "--limit", 2)
    golden("state-session", places, "state", places["b"], "visits", "session runs", "shop-7")


def test_states_as_json(places: dict[str, str]) -> None:
    told: dict[str, Any] = json.loads(penstock("state", places["a"], "--json").stdout)
    assert (told["job"], told["epoch"], told["max_parallelism"], told["sources"]) == ("shops", 5, 8, {"orders": [803]})
    best = next(state for state in told["states"] if state["state"] == "best")
    assert (best["kind"], best["entries"], best["key_type"]) == ("value", 23, "str")
    rows = json.loads(penstock("state", places["a"], "ledger", "orders", "--limit", 0, "--json").stdout)
    assert len(rows) == 23
    (row,) = json.loads(penstock("state", places["a"], "ledger", "orders", "shop-7", "--json").stdout)
    assert row == {"key": "shop-7", "value": 35}


def test_what_is_not_there(places: dict[str, str]) -> None:
    done = penstock("state", places["a"], "ledger", "ordres")
    assert done.exit_code == 1
    assert "step 'ledger' has no state 'ordres'" in done.stderr
    assert "orders" in done.stderr
    assert penstock("state", places["a"], "ledgr").exit_code == 1
    assert "nothing is kept for shop-99" in penstock("state", places["a"], "ledger", "orders", "shop-99").stdout


def test_diff(places: dict[str, str]) -> None:
    golden("diff", places, "diff", places["a"], places["b"])
    golden("diff-same", places, "diff", places["job"], places["a"])
    assert penstock("diff", places["a"], places["b"], "--exit-code").exit_code == 1
    assert penstock("diff", places["a"], places["job"], "--exit-code").exit_code == 0
    told = json.loads(penstock("diff", places["a"], places["b"], "--json").stdout)
    assert told["same"] is False
    orders = next(state for state in told["states"] if state["name"] == "orders")
    assert (orders["added"], orders["removed"], orders["changed"], orders["unchanged"]) == (1, 1, 1, 21)


def test_diff_of_output(places: dict[str, str], tmp_path: Path) -> None:
    run_some(tmp_path, epochs=2)
    out, other = f"{places['folder']}/job-out/hourly", tmp_path / "job-out" / "hourly"
    golden("diff-output", places, "diff", "--output", out, other)
    assert penstock("diff", "--output", "--exit-code", out, out).exit_code == 0
    told = json.loads(penstock("diff", "--output", "--json", f"{places['folder']}/job-out", tmp_path / "job-out").stdout)
    assert [one["sink"] for one in told] == ["dearest-out", "hourly-out", "ledger-out", "visits-out"]


def test_rewrite(places: dict[str, str], tmp_path: Path) -> None:
    done = penstock("savepoint-rewrite", places["a"], "--max-parallelism", 20, "--to", tmp_path / "c")
    assert done.exit_code == 0, done.output
    assert "20 key groups" in done.stdout
    assert f"start a new job with --from file://{tmp_path / 'c'}, a new storage and new folders for its file sinks" in done.stdout
    assert "the old ones belong to a job with 8 key groups" in done.stdout
    assert penstock("diff", places["a"], tmp_path / "c", "--exit-code").exit_code == 0
    again = penstock("savepoint-rewrite", places["a"], "--max-parallelism", 20, "--to", tmp_path / "c")
    assert again.exit_code == 1
    assert "holds a savepoint already" in again.stderr


def test_an_older_key_hash(tmp_path: Path) -> None:
    """Whoever looks at an old savepoint, or job, learns why its keys may be spread unevenly, and what fixes that."""
    uneven = "4 key groups, key hash 1: keys may be spread unevenly, `penstock savepoint-rewrite` fixes that"
    assert uneven in penstock("state", OLD / "savepoint").stdout
    storage = shutil.copytree(OLD / "storage", tmp_path / "job")
    made = penstock("savepoint", storage, "--to", tmp_path / "made")
    assert uneven in made.stdout
    assert json.loads(penstock("jobs", storage, "--json").stdout)[0]["key_hash"] == 1
    assert json.loads(penstock("state", storage, "--json").stdout)["key_hash"] == 1
    done = penstock("savepoint-rewrite", tmp_path / "made", "--to", tmp_path / "mixed")
    assert done.exit_code == 0, done.output
    assert "4 key groups, key hash 1 became 2" in done.stdout
    assert f"in the job's own storage or a new one: --from file://{tmp_path / 'mixed'}" in done.stdout
    assert "key hash" not in penstock("state", tmp_path / "mixed").stdout
    assert penstock("diff", tmp_path / "made", tmp_path / "mixed", "--exit-code").exit_code == 0

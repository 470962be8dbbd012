"""The shared pattern cases, where they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.run_cep import main, outcomes

FILE = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "flink_cep.json"

CASE: dict[str, Any] = {
    "id": "own/next",
    "input": [{"name": "a", "id": 1, "ts": 1}, {"name": "b", "id": 2, "ts": 2}],
    "pattern": {
        "stages": [
            {"name": "x", "contiguity": "begin", "where": [{"op": "==", "l": {"field": "name"}, "r": {"const": "a"}}]},
            {"name": "y", "contiguity": "next", "where": [{"op": "contains", "l": {"field": "name"}, "r": {"const": "b"}}]},
        ]
    },
    "expect": {"matches": [[{"id": 2}, {"id": 1}]]},
}


@pytest.mark.skipif(not FILE.exists(), reason=f"the shared cases are not here: {FILE}")
def test_shared_cases() -> None:
    assert [outcome for outcome in outcomes(json.loads(FILE.read_text())) if outcome[1] != "passed"] == []


def test_the_runner_tells_right_from_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {**CASE, "id": "own/wrong", "expect": {"matches": []}}
    other = {
        **CASE,
        "id": "own/other",
        "pattern": {"stages": [{"name": "x", "contiguity": "hops"}, {"name": "y", "contiguity": "hops"}]},
    }
    file = tmp_path / "cases.json"
    file.write_text(json.dumps([CASE, wrong, other]))
    assert main([str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("failed: own/wrong: WrongError: match: missing nothing; too many 1 2")
    assert lines[-1] == "1 passed, 1 failed, 1 skipped"

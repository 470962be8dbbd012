"""Flink's expression cases, where they are; and that the runner can fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.run_expressions import main

FILE = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "flink_expressions.json"


@pytest.mark.skipif(not FILE.exists(), reason=f"the shared cases are not here: {FILE}")
def test_flink_s_expressions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(str(FILE)) == 0
    passed, failed, _ = capsys.readouterr().out.splitlines()[-1].split(", ")
    assert failed == "0 failed"
    assert int(passed.split()[0]) >= 190


def test_the_runner_tells_right_from_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases: list[dict[str, Any]] = [
        {"id": "right", "sql": "f0 + 1", "fields": [{"name": "f0", "type": "INT", "value": 4}], "expect": {"value": 5}},
        {"id": "wrong", "sql": "UPPER('a')", "fields": [], "expect": {"string": "a"}},
        {"id": "not-ours", "sql": "SOUNDEX('a')", "fields": [], "expect": {"string": "a"}},
    ]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    assert main(str(tmp_path / "cases.json")) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "wrong: UPPER('a'): expected 'a', got 'A'"
    assert lines[-1] == "1 passed, 1 failed, 1 skipped"

"""The shared operator scripts, where they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.run_scripts import BUILDERS, main, outcomes

FILE = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "operator_scripts.json"

needs_file = pytest.mark.skipif(not FILE.exists(), reason=f"the shared cases are not here: {FILE}")


@needs_file
@pytest.mark.parametrize("kind", sorted(BUILDERS))
def test_scripts(kind: str) -> None:
    scripts = [s for s in json.loads(FILE.read_text())["scripts"] if s["operator"]["kind"] == kind]
    found = list(outcomes(scripts, restore_anywhere=True))
    assert found
    assert [outcome for outcome in found if outcome[1] != "passed" and not outcome[2].startswith("Beam: ")] == []


SCRIPT: dict[str, Any] = {
    "id": "own/toggle",
    "operator": {"kind": "keyed_process", "key": "identity", "function": {"name": "toggle_state", "domain": "event"}},
    "steps": [
        {"watermark": 1},
        {"element": {"value": 17, "ts": 0}},
        {"element": {"value": 13, "ts": 0}},
        {"watermark": 2},
        {"element": {"value": 13, "ts": 1}},
        {"expect_event_timers": 1},
        {"expect_state_entries": {"gt": 0}},
        {"watermark": 6},
        {
            "expect": [
                {"watermark": 1},
                {"value": "INPUT:17", "ts": 0},
                {"value": "INPUT:13", "ts": 0},
                {"watermark": 2},
                {"value": "STATE:17", "ts": 6},
                {"watermark": 6},
            ],
            "order": "exact",
        },
    ],
}


def test_the_runner_tells_right_from_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {**SCRIPT, "id": "own/wrong", "steps": [*SCRIPT["steps"][:-1], {"expect": [], "order": "exact"}]}
    other = {**SCRIPT, "id": "own/other", "operator": {"kind": "no such kind"}}
    file = tmp_path / "scripts.json"
    file.write_text(json.dumps({"scripts": [SCRIPT, wrong, other]}))
    assert main([str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAILED own/wrong: ExpectationError: step 9: expected [], got ")
    assert lines[1:] == ["skipped 1: no such kind: not built yet", "1 passed, 1 failed, 1 skipped"]
    assert main([str(file), "--kind", "no such kind"]) == 0
    file.write_text(json.dumps({"scripts": [SCRIPT]}))
    assert main([str(file), "--restore-anywhere"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "10 passed, 0 failed, 0 skipped"

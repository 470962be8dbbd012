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


def element(value: Any, ts: int | None, port: int = 0, **more: Any) -> dict[str, Any]:
    return {"element": {"value": value, "ts": ts, "input": port}, **more}


def broadcast_operator(name: str, key: str | None = "identity", **more: Any) -> dict[str, Any]:
    keyed = {} if key is None else {"key": key}
    function = {"name": name, **more}
    return {"kind": "broadcast", **keyed, "keyed_input": 0, "broadcast_input": 1, "function": function}


OTHER_WORDS: dict[str, dict[str, Any]] = {
    "append_key": {
        "operator": {"kind": "keyed_process", "key": "to_string", "function": {"name": "append_key"}},
        "steps": [element(17, 3), {"expect": [{"value": "17,17", "ts": 3}], "order": "exact"}],
    },
    "emit_field1": {
        "operator": {"kind": "keyed_process", "key": "field0", "function": {"name": "emit_field1"}},
        "steps": [element(["k", 5], 3), {"expect": [{"value": 5, "ts": 3}], "order": "exact"}],
    },
    "co_append_key": {
        "operator": {"kind": "keyed_co_process", "key": ["to_string", "identity"], "function": {"name": "append_key"}},
        "steps": [element(1, 3), element("1", 4, 1), {"expect": [{"value": "1,1"}, {"value": "1,1"}], "order": "exact"}],
    },
    "co_both_timers": {
        "operator": {"kind": "keyed_co_process", "key": ["to_string", "identity"], "function": {"name": "co_both_timers"}},
        "steps": [
            element(5, None),
            element("5", None, 1),
            {"processing_time": 3},
            {"processing_time": 5},
            {"watermark": 5},
            {"watermark": 6, "input": 0},
            {"watermark": 6, "input": 1},
            {
                "expect": [
                    {"value": "PROC:1777", "ts": None},
                    {"watermark": 5},
                    {"value": "EVENT:1777", "ts": 6},
                    {"watermark": 6},
                ],
                "order": "exact",
            },
        ],
    },
    "br_collect_lists": {
        "operator": broadcast_operator("br_collect_lists", key="field0"),
        "steps": [
            element(["a", 1], 1),
            element(["b", 2], 1),
            element(["a", 3], 1),
            element("see", 2, 1),
            {"expect_visited": {"a": [["a", 1], ["a", 3]], "b": [["b", 2]]}},
        ],
    },
    "br_timer": {
        "operator": broadcast_operator("br_timer", timer_ms=41),
        "steps": [
            {"watermark": 10},
            element(5, 12, 1),
            element("k", 13),
            {"watermark": 50},
            {
                "expect": [
                    {"watermark": 10},
                    {"value": "BR:5 WM:10 TS:12", "ts": 12},
                    {"value": "NON-BR:k WM:10 TS:13", "ts": 13},
                    {"value": "TIMER:41", "ts": 41},
                    {"watermark": 50},
                ],
                "order": "exact",
            },
        ],
    },
    "br_side_output": {
        "operator": broadcast_operator("br_side_output", key=None),
        "steps": [
            {"watermark": 10},
            element(5, 12, 1),
            element("k", 13),
            {"expect_side": [{"value": "BR:5 WM:10 TS:12"}], "tag": "br-out", "order": "exact"},
            {"expect_side": [{"value": "NON-BR:k WM:10 TS:13"}], "tag": "non-br-out", "order": "exact"},
        ],
    },
    "br_keyed_access": {
        "operator": broadcast_operator("br_keyed_access"),
        "steps": [element(5, 12, 1, raises="there is no key", raises_inside_function=True)],
    },
    "br_register_keys": {
        "operator": {
            **broadcast_operator("br_register_keys", key=None, keys=["a", "b"]),
            "parallelism": 2,
            "max_parallelism": 10,
        },
        "steps": [
            element(3, None, 1),
            {"snapshot_restore": {"parallelism": 3}},
            *(element("any", None, subtask=n) for n in range(3)),
            *({"expect": [{"value": "a=3"}, {"value": "b=3"}], "order": "any", "subtask": n} for n in range(3)),
        ],
    },
    "from the other side": {
        "operator": {**broadcast_operator("br_register_keys", keys=["a"]), "keyed_input": 1, "broadcast_input": 0},
        "steps": [element(3, None, 0), element("k", 1, 1), {"expect": [{"value": "a=3", "ts": 1}], "order": "exact"}],
    },
}


@pytest.mark.parametrize("name", OTHER_WORDS)
def test_words_that_no_script_of_the_file_uses(name: str) -> None:
    assert [outcome for outcome in outcomes([{"id": name, **OTHER_WORDS[name]}]) if outcome[1] != "passed"] == []


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

"""Names of classes in stored data find classes that are loaded and are made of fields; they import and call nothing else."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import ValueState, snapshots
from penstock.errors import PenstockError, StateError
from penstock.state.encoding.json_values import from_plain
from penstock.state.encoding.untyped import decode_untyped
from penstock.testing import replay_recorded
from tests.security.hostile import Keeping, forge_manifest, keeping, penstock

RECORD, ENUM = 5, 6


def record(name: str, **fields: Any) -> bytes:
    """A value in state that says it is a record of this class."""
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(RECORD, msgspec.msgpack.encode([name, fields])))


def planted(folder: Path) -> Path:
    """A module that touches a file when it is imported; where it is."""
    (folder / "penstock_planted.py").write_text(
        f"open({str(folder / 'marker')!r}, 'w').close()\nclass Thing:\n    _fields = ()\n"
    )
    return folder / "marker"


def test_a_class_named_in_state_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = planted(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateError, match="is not there any more"):
        decode_untyped(record("penstock_planted:Thing"))
    assert not marker.exists()


def test_nor_by_a_module_that_loads_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def on_demand(name: str) -> Any:
        asked.append(name)
        raise AttributeError(name)

    lazy = types.ModuleType("penstock_lazy")
    lazy.__getattr__ = on_demand  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "penstock_lazy", lazy)
    with pytest.raises(StateError):
        decode_untyped(record("penstock_lazy:Thing"))
    assert asked == []


@pytest.mark.parametrize("name", ["subprocess:Popen", "builtins:eval", "subprocess:os.system", "ast:Name", "builtins:dict"])
def test_only_records_are_made(name: str, tmp_path: Path) -> None:
    with pytest.raises(StateError):
        decode_untyped(record(name, args=["touch", str(tmp_path / "marker")]))
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("form", ["record", "enum", "custom"])
def test_a_recorded_case_makes_only_records(tmp_path: Path, form: str) -> None:
    """A case is a file from somewhere: it does not start processes."""
    marker, case = tmp_path / "marker", tmp_path / "case.json"
    env = keeping(tmp_path / "job", Keeping(ValueState(int)))
    env.execute()
    snapshots.replay(tmp_path / "job", "latest", env=env, step="step", record=str(case))
    whole = json.loads(case.read_text())
    call = {"args": ["touch", str(marker)]}
    given = next(item["records"] for item in whole["parts"][0]["input"] if "records" in item)
    given[0]["value"] = {
        "record": {"$record": "subprocess:Popen", "fields": call},
        "enum": {"$enum": "subprocess:Popen", "name": str(marker)},
        "custom": {"$custom": "subprocess:Popen", "value": call},
    }[form]
    case.write_text(json.dumps(whole))
    with pytest.raises(PenstockError):
        replay_recorded(case, Keeping(ValueState(int)))
    assert not marker.exists()


def test_types_that_a_test_gives_are_records_too(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="is not a class that recorded values are made of"):
        from_plain({"$record": "x:Path", "fields": {}}, lambda name: Path)


def test_tools_import_nothing_that_a_storage_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = planted(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    storage = tmp_path / "job"
    keeping(storage, Keeping(ValueState(int))).execute()

    def change(whole: dict[str, Any]) -> None:
        for info in whole["state"]["ids"].values():
            if info["name"] == "held":
                info["schema"] = {"record": "penstock_planted.Thing", "form": "map", "fields": []}
        for source in whole["sources"].values():
            source["kind"] = "penstock_planted.Thing"

    forge_manifest(storage, change)
    for command in (["state", storage], ["state", storage, "step", "held"], ["diff", storage, storage], ["jobs", tmp_path]):
        penstock(*command)
        assert not marker.exists()
        assert "penstock_planted" not in sys.modules
    with pytest.raises(PenstockError):
        keeping(storage, Keeping(ValueState(int)), count=8).execute()
    assert not marker.exists()


def test_column_names_in_data_are_not_code(tmp_path: Path) -> None:
    import pyarrow as pa

    from penstock.records import DICT_ROW

    marker = tmp_path / "marker"
    name = f"'}} for v0, in zip(*c)] or [open({str(marker)!r}, 'w') #{{x}}\\"
    batch = pa.record_batch({name: [1], "n": [2]})
    assert list(DICT_ROW.records(batch)) == [{name: 1, "n": 2}]
    assert not marker.exists()

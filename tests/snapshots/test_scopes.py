"""State that is not kept by key, in snapshots: once in each, shown, compared, grouped anew, resumed from with any parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import FileSink, StreamEnvironment
from penstock.connectors.files.reading.published import read_rows
from penstock.plan.definition import Definition
from penstock.snapshots import diff, read
from penstock.snapshots.edit.editing import edit
from penstock.snapshots.edit.regrouping import regroup
from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.state.descriptors import OperatorListState
from penstock.state.key_groups import SHARED_GROUP
from penstock.storage import open_storage
from tests.laws.ordered_programs import _Dies, _Stopped
from tests.laws.scoped_steps import Hoarding, Pricing, environment, hoarded, priced, times
from tests.laws.test_scopes import RULES, by_time, shop

PURCHASES, RULES_GIVEN = shop(7, 30)
SOURCE = [(n, time) for n, time in enumerate(times(30))]


def pricing(folder: Path, job: str, parallelism: int, **settings: Any) -> StreamEnvironment:
    env = environment(parallelism, storage=str(folder / job), local_dir=str(folder / "local"), **settings)
    stream = priced(env, PURCHASES, RULES_GIVEN, Pricing(rules=RULES))
    stream.sink_to(FileSink(str(folder / f"out-{job}"), format="json"), name="out")
    return env


def hoarding(folder: Path, job: str, parallelism: int, united: bool, **settings: Any) -> StreamEnvironment:
    env = environment(parallelism, storage=str(folder / job), local_dir=str(folder / "local"), **settings)
    definition: Definition = Hoarding(kept=OperatorListState(tuple[int, int], united=united))
    hoarded(env, [SOURCE], definition).sink_to(FileSink(str(folder / f"out-{job}"), format="json"), name="out")
    return env


def interrupt(env: StreamEnvironment, epochs: int = 6) -> None:
    with pytest.raises(_Stopped):
        env.execute(executor=_Dies(epochs))


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_broadcast_state_is_in_a_snapshot_once(tmp_path: Path, parallelism: int) -> None:
    interrupt(pricing(tmp_path, "job", 3, max_records_per_epoch=5))
    info = make_savepoint(open_storage(str(tmp_path / "job")), to=str(tmp_path / "savepoint"))
    assert info.version == 4
    assert [(state.info.name, state.info.scope, len(state.files)) for state in info.states] == [("rules", "broadcast", 1)]
    shown = []
    for place in (str(tmp_path / "savepoint"), str(tmp_path / "job")):
        with read(place) as snapshot:
            rules = snapshot.state("pricing", "rules")
            assert rules.entries == len(rules) == len(rules.get(None)) > 0
            assert set(rules.to_arrow()["key"].to_pylist()) == {None}
            shown.append(rules.get(None))
    assert shown[0] == shown[1]
    assert diff(str(tmp_path / "savepoint"), str(tmp_path / "job")).same

    pricing(tmp_path, "other", parallelism).execute(restore_from=str(tmp_path / "savepoint"))
    whole = by_time(priced(environment(1), PURCHASES, RULES_GIVEN, Pricing(rules=RULES)).execute_and_collect())
    rows = [*read_rows(tmp_path / "out-job"), *read_rows(tmp_path / "out-other")]
    assert by_time(rows) == whole


def test_broadcast_state_stays_where_it_is_when_keys_are_grouped_anew(tmp_path: Path) -> None:
    interrupt(pricing(tmp_path, "job", 3, max_records_per_epoch=5, max_parallelism=16))
    regroup(str(tmp_path / "job"), 64, str(tmp_path / "savepoint"))
    with read(str(tmp_path / "savepoint")) as snapshot:
        groups = [row for batch in snapshot.state("pricing").batches(raw=True) for row in batch["key_group"].to_pylist()]
    assert set(groups) == {SHARED_GROUP}
    assert diff(str(tmp_path / "savepoint"), str(tmp_path / "job")).same


def test_broadcast_state_is_edited(tmp_path: Path) -> None:
    interrupt(pricing(tmp_path, "job", 2, max_records_per_epoch=5))
    with edit(str(tmp_path / "job")) as snapshot:
        snapshot.state("pricing", "rules").map(lambda row: {**row, "value": {**row["value"], "_2": 1000}})
        snapshot.write(str(tmp_path / "savepoint"))
    pricing(tmp_path, "other", 3).execute(restore_from=str(tmp_path / "savepoint"))
    first = min(read_rows(tmp_path / "out-other"), key=lambda row: row["time"])
    assert first["rule"] is None or first["rule"][1] == 1000


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("united", [False, True])
def test_operator_state_is_in_a_snapshot(tmp_path: Path, parallelism: int, united: bool) -> None:
    interrupt(hoarding(tmp_path, "job", 3, united, max_records_per_epoch=5))
    make_savepoint(open_storage(str(tmp_path / "job")), to=str(tmp_path / "savepoint"))
    with read(str(tmp_path / "savepoint")) as snapshot:
        before = [tuple(value.values()) for value in snapshot.state("hoard", "kept").to_arrow()["value"].to_pylist()]
    assert sorted(before) == SOURCE[: len(before)]
    assert before
    assert diff(str(tmp_path / "savepoint"), str(tmp_path / "job")).same
    hoarding(tmp_path, "other", parallelism, united).execute(restore_from=str(tmp_path / "savepoint"))
    found = [tuple(row["value"]) for row in read_rows(tmp_path / "out-other")]
    assert sorted(found) == sorted(SOURCE + before * ((parallelism if united else 1) - 1))

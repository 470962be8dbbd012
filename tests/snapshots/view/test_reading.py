"""Snapshots, looked into: savepoints and epochs of jobs alike."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock import snapshots
from penstock.errors import ConfigError, NotFoundError, StateError
from penstock.storage import open_storage
from tests.snapshots.shops import orders, run_some, save


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("reading")
    job = run_some(folder)
    return {"job": job, "savepoint": save(job, folder / "savepoint")}


def pins(job: str) -> list[str]:
    return [listed.path for listed in open_storage(job).list("pins")]


def raw_entries(state: snapshots.SnapshotState) -> list[dict[str, Any]]:
    return [row for batch in state.batches(raw=True) for row in batch.select(["key_group", "raw_key", "raw_value"]).to_pylist()]


def test_a_savepoint_and_the_epoch_it_is_of_hold_the_same(places: dict[str, str]) -> None:
    with snapshots.read(places["job"]) as epoch, snapshots.read(places["savepoint"]) as savepoint:
        assert (epoch.epoch, epoch.job.name, epoch.max_parallelism) == (savepoint.epoch, "shops", 128)
        assert epoch.sources == savepoint.sources
        assert epoch.watermarks == savepoint.watermarks
        assert [(s.step, s.name, s.entries) for s in epoch.states()] == [(s.step, s.name, s.entries) for s in savepoint.states()]
        for one, other in zip(epoch.states(), savepoint.states(), strict=True):
            assert raw_entries(one) == raw_entries(other)
            assert other.to_arrow().schema.equals(other.schema)
            assert one.next_due == other.next_due


@pytest.mark.parametrize("place", ["job", "savepoint"])
def test_values_are_those_of_the_program(places: dict[str, str], place: str) -> None:
    seen = [order for order in orders(0, 800) if order.shop == "shop-7"]
    with snapshots.read(places[place]) as found:
        assert found.state("ledger", "orders").get("shop-7") == len(seen)
        assert found.state("ledger", "total").get("shop-7") == sum(order.cents for order in seen)
        assert found.state("ledger", "recent").get("shop-7") == [order.cents for order in seen]
        items = {item: sum(o.item == item for o in seen) for item in {o.item for o in seen}}
        assert found.state("ledger", "items").get("shop-7") == items
        best = max(seen, key=lambda order: order.cents)
        assert found.state("ledger", "best").get("shop-7") == {"item": best.item, "cents": best.cents}
        due = {order.time + 60_000 for order in seen if order.time + 60_000 > found.watermarks["ledger"]}
        assert found.state("ledger", "timers:event").get("shop-7") == [datetime.fromtimestamp(t / 1000, UTC) for t in sorted(due)]
        ((window, value),) = found.state("dearest").get("shop-7", {}).items() or [(None, None)]
        assert window[0] < window[1]
        assert value["$record"].endswith(":Order")
        assert found.state("ledger", "orders").get("nobody", "?") == "?"
        (row,) = found.state("hourly").find("shop-7").to_pylist()
        assert row["rows"] == len(row["keys"])
        frame = found.state("ledger", "orders").to_pandas()
        assert dict(zip(frame["key"], frame["value"], strict=True))["shop-7"] == len(seen)


def test_an_epoch_is_pinned_until_it_is_closed(places: dict[str, str]) -> None:
    with snapshots.read(f"{places['job']}@3") as found:
        assert (found.epoch, found.uri.rpartition("@")[2]) == (3, "3")
        assert len(pins(places["job"])) == 1
    assert pins(places["job"]) == []
    forgotten = snapshots.read(places["job"])
    assert len(pins(places["job"])) == 1
    del forgotten
    gc.collect()
    assert pins(places["job"]) == []


def test_what_is_not_there_is_told(places: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="neither a savepoint nor a job"):
        snapshots.read(str(tmp_path))
    with pytest.raises(ConfigError, match=r"epoch 99 of .* is not kept"):
        snapshots.read(f"{places['job']}@99")
    with snapshots.read(places["savepoint"]) as found:
        with pytest.raises(StateError, match="no step 'ledgre' has state"):
            found.state("ledgre")
        with pytest.raises(StateError, match="step 'ledger' has several states"):
            found.state("ledger")
        with pytest.raises(StateError, match="5 cannot be a key"):
            found.state("ledger", "orders").get(5)

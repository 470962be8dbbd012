"""Steps beyond those of the shop, replayed: two inputs, whole batches in the debugger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import CollectionSource, DataStream, StreamEnvironment, ValueState, Watermarks, snapshots
from penstock.functions import KeyedCoProcessFunction
from penstock.runtime.operators.co_process import KeyedCoProcess
from penstock.snapshots.replay.watching.debugger import Debugger
from penstock.storage import open_storage
from penstock.testing import replay_recorded
from tests.snapshots.replay.test_replay import SETTINGS


class Rates(KeyedCoProcessFunction[str, Any, Any, Any]):
    """Amounts at the rate of their time."""

    rate = ValueState(int, default=1)

    def process1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value["n"] * self.rate.value

    def process2(self, value: Any, ctx: Any) -> None:
        self.rate.update(value["rate"])
        ctx.timers.register_event_time(value["at"] + 5)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield f"{ctx.key} until {timestamp}"


def exchange(storage: Path, function: Any = None) -> StreamEnvironment:
    env = StreamEnvironment("exchange", storage=str(storage), **SETTINGS)

    def read(rows: list[dict[str, Any]], name: str) -> DataStream[Any]:
        return env.from_source(CollectionSource(rows), watermarks=Watermarks.monotonous(timestamp="at"), name=name)

    amounts = read([{"key": "ab"[n % 2], "n": n, "at": n * 10} for n in range(20)], "amounts")
    rates = read([{"key": "ab"[n % 2], "rate": n, "at": n * 15 + 1} for n in range(12)], "rates")
    inputs = amounts.key_by("key")._input(), rates.key_by("key")._input()
    step = env._add(KeyedCoProcess(body=function or Rates()), *inputs, name="exchanged", label="co-process")
    DataStream[Any](env, step).print(name="out")
    return env


def test_both_inputs_of_a_step_are_replayed(tmp_path: Path) -> None:
    exchange(tmp_path).execute()
    kinds: list[str] = []
    for one in snapshots.replayable(open_storage(tmp_path)):
        replayed = snapshots.replay(tmp_path, one.epoch, env=exchange(tmp_path), step="exchanged")
        assert replayed.reproduced, replayed.verdict
        step = replayed.step("exchanged")
        for event in step.events:
            kinds.append("timer" if event.kind == "timer" else "rate" if "rate" in event.value else "amount")
            if kinds[-1] == "rate":
                assert event.after == {"rate": event.value["rate"]}
                assert [timer.time for timer in event.timers] == [event.value["at"] + 5]
            elif kinds[-1] == "amount":
                assert event.before == event.after
                rate = 1 if not event.before else event.before["rate"]
                assert [out.value for out in event.outputs] == [event.value["n"] * rate]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"amount": 20, "rate": 12, "timer": 12}


def test_a_case_keeps_the_input_that_a_record_came_in_at(tmp_path: Path) -> None:
    class Careless(Rates):
        def process2(self, value: Any, ctx: Any) -> None:
            self.rate.update(value["rate"] + 1)

    exchange(tmp_path / "job").execute()
    case = tmp_path / "case.json"
    ports: set[int] = set()
    complaints: list[str] = []
    for one in snapshots.replayable(open_storage(tmp_path / "job")):
        snapshots.replay(tmp_path / "job", one.epoch, env=exchange(tmp_path / "job"), step="exchanged", record=str(case))
        items = [item for part in json.loads(case.read_text())["parts"] for item in part["input"]]
        ports |= {row.get("port", 0) for item in items for row in item.get("records", ())}
        assert replay_recorded(case, exchange(tmp_path / "other"))
        try:
            replay_recorded(case, exchange(tmp_path / "other", Careless()))
        except AssertionError as error:
            complaints.append(str(error))
    assert ports == {0, 1}
    assert complaints
    assert all("not what was recorded" in complaint for complaint in complaints)


def doubled(batch: pa.RecordBatch) -> Iterator[dict[str, int]]:
    for row in batch.to_pylist():
        yield {"n": 2 * row["n"]}


@pytest.mark.parametrize("step", ["doubled", "kept"])
def test_the_debugger_stops_in_functions_without_state(tmp_path: Path, step: str) -> None:
    def build() -> StreamEnvironment:
        env = StreamEnvironment("batches", **{**SETTINGS, "storage": str(tmp_path), "parallelism": 1})
        batches: DataStream[Any] = env.from_collection([{"n": n} for n in range(3)]).map_batches(doubled, name="doubled")
        batches.filter(lambda row: row["n"] > 2, name="kept").print(name="out")
        return env

    build().execute()
    said = StringIO()
    debugger = Debugger(stdin=StringIO("p 'here'\nc\n"), stdout=said)
    replayed = snapshots.replay(tmp_path, 2, env=build(), step=step, debugger=debugger)
    debugger.close()
    assert replayed.reproduced
    assert "'here'" in said.getvalue()
    assert {"doubled": "for row in batch.to_pylist()", "kept": 'row["n"] > 2'}[step] in said.getvalue()

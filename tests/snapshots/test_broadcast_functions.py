"""Broadcast state of functions in all that is done with snapshots: shown, compared, replayed, recorded, migrated, built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock import CollectionSource, CollectSink, DataStream, StreamEnvironment, ValueState, Watermarks, snapshots
from penstock.config import NO_RESTART
from penstock.errors import ConfigError, PenstockError, StateError
from penstock.functions import KeyedBroadcastProcessFunction
from penstock.state import BroadcastMapState
from penstock.storage import open_storage
from penstock.testing import replay_recorded
from tests.laws.ordered_programs import _Dies, _Stopped


@dataclass(frozen=True)
class Limit:
    most: int


class Limits(KeyedBroadcastProcessFunction[str, Any, Any, Any]):
    limits: BroadcastMapState[str, Limit] = BroadcastMapState(str, Limit)
    spent = ValueState(int, 0)

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.spent.update(self.spent.value + 1)
        yield ctx.key, value["n"], sorted((kind, limit.most) for kind, limit in self.limits.items())

    def process_broadcast(self, value: Any, ctx: Any) -> Iterator[Any] | None:
        self.limits.put(value["kind"], Limit(value["most"]))
        found: list[str] = []
        ctx.apply_to_keyed_state(self.spent, lambda key, spent: found.append(key))
        return iter([("told", sorted(found))])


def in_words(limit: Any) -> str:
    return f"at most {limit['most']}"


class LimitsInWords(Limits):
    limits: Any = BroadcastMapState(str, str, migrate=in_words)

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.key, value["n"], sorted(self.limits.items())

    def process_broadcast(self, value: Any, ctx: Any) -> None:
        """The old ones stay."""


def program(storage: Path, function: Any = None, **settings: Any) -> tuple[StreamEnvironment, CollectSink]:
    defaults = {"executor": "inline", "parallelism": 2, "restart": NO_RESTART, "max_records_per_epoch": 6, "keep": 50}
    env = StreamEnvironment("limits", storage=str(storage), **{**defaults, **settings})

    def read(rows: list[dict[str, Any]], name: str) -> DataStream[Any]:
        return env.from_source(CollectionSource(rows), watermarks=Watermarks.monotonous(timestamp="at"), name=name)

    payments = read([{"key": "ab"[n % 2], "n": n, "at": n * 10} for n in range(20)], "payments")
    rules = read([{"kind": "xy"[n % 2], "most": n, "at": n * 25 + 1} for n in range(8)], "rules")
    sink = CollectSink()
    limits = payments.key_by("key").connect(rules.broadcast()).process(function or Limits(), name="limits")
    limits.sink_to(sink, name="out")
    return env, sink


def test_it_is_shown_and_compared(tmp_path: Path) -> None:
    program(tmp_path)[0].execute()
    epochs = [one.epoch for one in snapshots.replayable(open_storage(tmp_path))]
    with snapshots.read(f"{tmp_path}@latest") as latest:
        limits = latest.state("limits", "limits")
        assert limits.entries == 2
        assert dict(limits.get(None)) == {"x": {"most": 6}, "y": {"most": 7}}
    found = snapshots.diff(f"{tmp_path}@{epochs[0]}", f"{tmp_path}@latest")
    assert not found.same
    (changed,) = [state for state in found.states if state.name == "limits"]
    assert changed.changed or changed.added


def test_it_is_replayed_and_recorded(tmp_path: Path) -> None:
    program(tmp_path / "job")[0].execute()
    case = tmp_path / "case.json"
    told = 0
    for one in snapshots.replayable(open_storage(tmp_path / "job")):
        env, _ = program(tmp_path / "job")
        replayed = snapshots.replay(tmp_path / "job", one.epoch, env=env, step="limits", record=str(case))
        assert replayed.reproduced, replayed.verdict
        for event in replayed.step("limits").events:
            if "most" in event.value:
                told += 1
                assert event.after is not None
                assert event.after["limits"][event.value["kind"]] == Limit(event.value["most"])
                assert [out.value[0] for out in event.outputs] == ["told"]
    with pytest.raises(ConfigError, match="cannot be run, only read"):
        replay_recorded(case, program(tmp_path / "other")[0])
    assert told == 8 * 2, "in each partition"


@pytest.mark.parametrize("parallelism", [2, 3])
def test_it_migrates(tmp_path: Path, parallelism: int) -> None:
    with pytest.raises(_Stopped):
        program(tmp_path)[0].execute(executor=_Dies(4))
    with snapshots.read(f"{tmp_path}@latest") as latest:
        kept = {kind: f"at most {limit['most']}" for kind, limit in dict(latest.state("limits", "limits").get(None)).items()}
    assert kept
    env, sink = program(tmp_path, LimitsInWords(), parallelism=parallelism)
    verdicts = snapshots.check(env, str(tmp_path))
    assert not verdicts.refused
    assert [(one.name, one.verdict) for one in verdicts.states if one.name == "limits"] == [("limits", "migrates")]
    env.execute()
    rows = sink.results()
    assert rows
    assert all(dict(row[2]) == kept for row in rows)
    with snapshots.read(f"{tmp_path}@latest") as latest:
        assert dict(latest.state("limits", "limits").get(None)) == kept


@pytest.mark.parametrize("parallelism", [1, 3])
def test_it_is_built(tmp_path: Path, parallelism: int) -> None:
    env, _ = program(tmp_path / "none")
    with snapshots.build(env) as build:
        build.state("limits", "limits").put([{"map_key": "z", "value": {"most": 5}}, {"map_key": "q", "value": {"most": 9}}])
        with pytest.raises(StateError, match="is broadcast state, which has no key"):
            build.state("limits", "limits").put([{"key": "a", "map_key": "z", "value": {"most": 5}}])
        build.write(str(tmp_path / "built"))
    env, sink = program(tmp_path / "job", parallelism=parallelism)
    env.execute(restore_from=str(tmp_path / "built"))
    rows = [row for row in sink.results() if row[0] != "told"]
    assert len(rows) == 20
    assert all({("z", 5), ("q", 9)} <= {*row[2]} for row in rows)


def test_what_is_no_longer_broadcast_is_refused(tmp_path: Path) -> None:
    class Own(Limits):
        limits: Any = ValueState(int, 0)

        def process(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield self.limits.value

        def process_broadcast(self, value: Any, ctx: Any) -> None:
            """Nothing comes of it."""

    program(tmp_path)[0].execute()
    with pytest.raises(PenstockError, match="it was broadcast state and is keyed state now"):
        program(tmp_path, Own())[0].execute()

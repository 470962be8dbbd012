"""Laws: broadcast state is the same in all partitions, whatever becomes of the job; no operator state is lost or doubled."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import FileSink, MapState
from penstock.connectors.files.reading.published import read_rows
from penstock.epochs.planning import report_check
from penstock.errors import PlanError, StateError
from penstock.ids import Epoch, StepId
from penstock.jobs.manifest import load_manifest
from penstock.plan.definition import StateDeclaration
from penstock.state.descriptors import ListState, OperatorListState, ValueState
from penstock.storage import open_storage
from tests.laws.ordered_programs import _Dies, _Stopped
from tests.laws.scoped_steps import Hoarding, Pricing, environment, hoarded, learn, priced, times
from tests.laws.trying import breaks

RULES: MapState[str, Any] = MapState(str, tuple[int, int])
MUTABLE: MapState[str, Any] = MapState(str, list[int])

runs = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5), st.integers(1, 30)), min_size=1, max_size=4)
"""Of each run of a job its parallelism, after how many epochs it dies, and how many records of an epoch at most."""


def shop(seed: int, count: int) -> tuple[list[Any], list[Any]]:
    rng = random.Random(seed)
    purchases = [(rng.randrange(5), rng.choice("abc"), time) for time in times(count)]
    rules = [(rng.choice("abc"), rng.choice([None, 1, 2, 3]), time) for time in times(count, 1005)]
    return purchases, rules


def interrupted(folder: Path, plan: list[tuple[int, int, int]], build: Any) -> list[dict[str, Any]]:
    """What a program gives that dies again and again, and goes on with another parallelism."""
    for parallelism, epochs, records in [*plan, (plan[-1][0], 1 << 30, plan[-1][2])]:
        env = environment(
            parallelism, storage=str(folder / "job"), local_dir=str(folder / "local"), max_records_per_epoch=records
        )
        build(env).sink_to(FileSink(str(folder / "out"), format="json"), name="out")
        try:
            env.execute(executor=_Dies(epochs))
            break
        except _Stopped:
            continue
    return list(read_rows(folder / "out"))


def by_time(rows: list[dict[str, Any]]) -> list[Any]:
    return sorted((row["time"], row["key"], list(row["rule"] or ()), row["rules"]) for row in rows)


@given(st.integers(0, 1 << 30), st.integers(1, 25), runs)
def test_broadcast_state_is_the_same_whatever_becomes_of_the_job(seed: int, count: int, plan: list[tuple[int, int, int]]) -> None:
    purchases, rules = shop(seed, count)
    whole = by_time(priced(environment(1), purchases, rules, Pricing(rules=RULES)).execute_and_collect())
    with tempfile.TemporaryDirectory() as folder:
        found = interrupted(Path(folder), plan, lambda env: priced(env, purchases, rules, Pricing(rules=RULES)))
        assert by_time(found) == whole


@given(st.integers(0, 40), st.integers(0, 40), runs)
def test_operator_state_is_dealt_out_anew_and_nothing_is_lost(first: int, second: int, plan: list[tuple[int, int, int]]) -> None:
    sources = [
        [(n, time) for n, time in enumerate(times(first))],
        [(100 + n, time) for n, time in enumerate(times(second, 1003))],
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = interrupted(
            Path(folder), plan, lambda env: hoarded(env, sources, Hoarding(kept=OperatorListState(tuple[int, int])))
        )
    assert sorted(tuple(row["value"]) for row in found) == sorted(value for source in sources for value in source)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=2), st.integers(1, 3))
def test_operator_state_sees_one_order_whatever_the_cut(cuts: list[int], parallelism: int) -> None:
    """Of two sources, without an exchange between the union and the step."""
    sources = [[(n, time) for n, time in enumerate(times(30))], [(7 * n + 1, time) for n, time in enumerate(times(25, 1003))]]

    def outcome(**settings: Any) -> list[Any]:
        definition = Hoarding(kept=OperatorListState(tuple[int, int]), every=5)
        rows = hoarded(environment(parallelism, **settings), sources, definition).execute_and_collect()
        return [(row["partition"], row["value"]) for row in rows]

    whole = outcome()
    for records in cuts:
        assert outcome(max_records_per_epoch=records) == whole


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_united_operator_state_is_all_there_in_every_partition(tmp_path: Path, parallelism: int) -> None:
    source = [(n, time) for n, time in enumerate(times(20))]
    kept: OperatorListState[Any] = OperatorListState(tuple[int, int], united=True)
    found = interrupted(tmp_path, [(3, 4, 4), (parallelism, 0, 100)], lambda env: hoarded(env, [source], Hoarding(kept=kept)))
    by_partition = {n: [tuple(row["value"]) for row in found if row["partition"] == n] for n in range(parallelism)}
    before = set.intersection(*map(set, by_partition.values()))
    assert len(before) >= 4, "what came before the change of parallelism"
    assert sorted(value for values in by_partition.values() for value in values if value not in before) == sorted(
        value for value in source if value not in before
    )


def test_united_operator_state_stays_as_it_is_with_the_same_parallelism(tmp_path: Path) -> None:
    source = [(n, time) for n, time in enumerate(times(20))]
    kept: OperatorListState[Any] = OperatorListState(tuple[int, int], united=True)
    found = interrupted(tmp_path, [(3, 4, 4), (3, 1, 4)], lambda env: hoarded(env, [source], Hoarding(kept=kept)))
    assert sorted(tuple(row["value"]) for row in found) == source


# --- copies that differ --------------------------------------------------------------------------------------------------------


def by_partition(rules: Any, rule: Any, partition: int) -> None:
    learn(rules, (rule[0], partition, rule[2]), partition)


def test_copies_that_differ_fail_the_epoch() -> None:
    purchases, rules = shop(1, 10)
    definition = Pricing(rules=RULES, learn=by_partition)
    with pytest.raises(StateError, match="broadcast state of step 'pricing' has been changed in different ways") as caught:
        priced(environment(3), purchases, rules, definition).execute_and_collect()
    assert "partitions that differ from partition 0: 1, 2" in caught.value.detail


def test_it_fails_if_nobody_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_check, "check_copies", lambda reports: None)
    breaks(test_copies_that_differ_fail_the_epoch)


def test_who_only_reads_cannot_write() -> None:
    purchases, rules = shop(1, 10)
    with pytest.raises(StateError, match="state 'rules' of step 'pricing' is broadcast state, and can only be read here"):
        priced(environment(2), purchases, rules, Pricing(rules=RULES, spoil=True)).execute_and_collect()


def in_place(rules: Any, rule: Any, partition: int) -> None:
    name, worth, _ = rule
    if name not in rules:
        rules.put(name, [])
    rules[name].append(worth or 0)


@given(st.integers(0, 1 << 30), runs)
def test_values_that_are_changed_in_place_are_kept(seed: int, plan: list[tuple[int, int, int]]) -> None:
    purchases, rules = shop(seed, 12)
    definition = Pricing(rules=MUTABLE, learn=in_place)
    whole = by_time(priced(environment(1), purchases, rules, definition).execute_and_collect())
    with tempfile.TemporaryDirectory() as folder:
        assert by_time(interrupted(Path(folder), plan, lambda env: priced(env, purchases, rules, definition))) == whole


# --- what is declared, and what is stored --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "scope", "said"),
    [
        (ValueState(int), "broadcast", "broadcast state of kind 'value'"),
        (ListState(int), "operator", "operator state of kind 'list'"),
        (OperatorListState(int), "keyed", "keyed state of kind 'elements'"),
    ],
)
def test_a_kind_of_state_that_is_not_for_this_scope(state: Any, scope: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        StateDeclaration(step=StepId("s"), name="x", state=state, kind=state.kind, scope=scope)


def test_the_manifest_says_whose_a_state_is(tmp_path: Path) -> None:
    purchases, rules = shop(1, 5)
    interrupted(tmp_path, [(2, 1, 10)], lambda env: priced(env, purchases, rules, Pricing(rules=RULES)))
    storage = open_storage(str(tmp_path / "job"))
    manifest = load_manifest(storage, Epoch(max(int(path.stem) for path in (tmp_path / "job" / "epochs").glob("*.json"))))
    assert manifest.version == 4
    assert {info.name: info.scope for info in manifest.state.ids.values()} == {"rules": "broadcast"}


def test_state_of_another_scope_is_not_taken_over(tmp_path: Path) -> None:
    from penstock import KeyedProcessFunction

    class Own(KeyedProcessFunction[int, Any, Any]):
        rules: MapState[str, Any] = MapState(str, tuple[int, int])

        def process(self, value: Any, ctx: Any) -> None:
            """Nothing comes of it."""

    purchases, rules = shop(1, 5)
    interrupted(tmp_path, [(2, 1, 10)], lambda env: priced(env, purchases, rules, Pricing(rules=RULES)))
    env = environment(2, storage=str(tmp_path / "job"), local_dir=str(tmp_path / "local"))
    stream = priced(env, purchases, rules, Pricing(rules=MapState(str, tuple[int, int])))
    del stream
    other = environment(2, storage=str(tmp_path / "job"), local_dir=str(tmp_path / "local"))
    other.from_collection([(1, "a", 5)], name="purchases").key_by(lambda value: value[0]).process(Own(), name="pricing").sink_to(
        FileSink(str(tmp_path / "out2"), format="json"), name="out"
    )
    with pytest.raises(StateError, match="it was broadcast state and is keyed state now"):
        other.execute()

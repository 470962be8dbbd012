"""Laws: what comes of a loop does not depend on the cut, a restart or the parallelism; time waits for what is in it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import StreamEnvironment
from penstock.jobs.terms import find_head
from penstock.runtime.operators.loop import LoopHeadOperator
from penstock.storage import open_storage
from tests.laws.looped_programs import Edge, reachability, reachable, step_of_collatz, steps_to_one
from tests.laws.ordered_programs import _Dies, _Stopped
from tests.laws.scoped_steps import environment
from tests.laws.test_scopes import interrupted

edges = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=10)
cuts = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(4, 12)), min_size=1, max_size=1)
"""Of each run of a job its parallelism, after how many epochs it dies, and how many records of an epoch at most."""

CHAIN: list[Edge] = [(node, node + 1) for node in range(12)]


def nodes_of(rows: list[dict[str, Any]]) -> list[int]:
    """The nodes, each as often as it was found; none of them may have come late."""
    assert not any(row["late"] for row in rows)
    return sorted(row["node"] for row in rows)


@given(edges, cuts, st.integers(1, 4))
def test_reachability_is_that_of_the_whole_graph(graph: list[Edge], plan: list[tuple[int, int, int]], turns: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = interrupted(Path(folder), plan, lambda env: reachability(env, graph, turns=turns, parts=1 + len(graph) % 3))
    assert nodes_of(rows) == reachable(graph)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), cuts, st.integers(3, 100), st.integers(1, 12))
def test_a_loop_without_an_exchange(numbers: list[int], plan: list[tuple[int, int, int]], turns: int, max_rounds: int) -> None:
    def build(env: StreamEnvironment) -> Any:
        rows = env.from_collection([(n, n, 0) for n in numbers], name="in").rebalance()
        loop = rows.iterate(max_rounds=max_rounds, turns=turns, record_type=tuple[int, int, int], name="collatz")
        stepped = loop.map(step_of_collatz)
        loop.close_with(stepped.filter(lambda row: row[1] != 1))
        done = stepped.filter(lambda row: row[1] == 1).map(lambda row: {"what": "done", "row": row})
        return done.union(loop.leftovers().map(lambda row: {"what": "left", "row": row}))

    with tempfile.TemporaryDirectory() as folder:
        rows = interrupted(Path(folder), plan, build)
    found = sorted((row["row"][0], row["what"], row["row"][2]) for row in rows)
    steps = [(n, steps_to_one(n)) for n in numbers]
    assert found == sorted((n, "done" if k <= max_rounds else "left", min(k, max_rounds)) for n, k in steps)


def test_a_job_dies_with_records_in_the_loop(tmp_path: Path) -> None:
    """What the other tests rely on happens: there is something in the loop, and it is state."""
    env = environment(3, storage=str(tmp_path / "job"), max_records_per_epoch=3)
    reachability(env, CHAIN, turns=1).print()
    with pytest.raises(_Stopped):
        env.execute(executor=_Dies(4))
    head = find_head(open_storage(str(tmp_path / "job")), fall_back=False, whole=None).manifest
    assert head is not None
    assert head.loops["spread"].records > 0
    assert any(info.name == "in_flight" and info.scope == "operator" for info in head.state.ids.values())


def test_it_fails_if_the_loop_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopHeadOperator, "begin", lambda self: None)
    rows = interrupted(tmp_path, [(2, 100, 100)], lambda env: reachability(env, CHAIN, turns=1))
    assert nodes_of(rows) != reachable(CHAIN)

"""A program is a value: what adds to it, or rewrites it, makes another."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest

from penstock import StreamEnvironment, col
from penstock.compile.rewrites import REWRITES
from penstock.connectors import CollectionSource
from penstock.errors import PlanError
from penstock.ids import StepId
from penstock.plan.nodes import Graph
from penstock.runtime.operators.source import SourceStep


def source() -> SourceStep:
    return SourceStep(source=CollectionSource([1]))


def test_a_step_more_is_another_program() -> None:
    one = Graph().add(source(), (), name="first", label="source")
    two = one.add(source(), (), name=None, label="source")
    assert [list(graph.nodes) for graph in (one, two)] == [["first"], ["first", "source-1"]]
    assert two.newest.step == "source-1"
    assert not two.newest.named


def test_nothing_can_be_changed_in_place() -> None:
    graph = Graph().add(source(), (), name="first", label="source")
    with pytest.raises(FrozenInstanceError):
        graph.nodes = {}  # type: ignore[misc]
    with pytest.raises(TypeError):
        graph.nodes[StepId("other")] = graph.newest  # type: ignore[index]


def test_a_program_survives_pickling() -> None:
    graph = Graph().add(source(), (), name="first", label="source").add(source(), (), name=None, label="source")
    assert pickle.loads(pickle.dumps(graph)) == graph


def test_what_an_environment_gave_out_stays_as_it_was() -> None:
    env = StreamEnvironment("values")
    numbers = env.from_collection([1, 2], name="numbers")
    before = env.graph
    numbers.map(lambda n: n + 1)
    assert list(before.nodes) == ["numbers"]
    assert list(env.graph.nodes) == ["numbers", "map-1"]


def test_a_step_that_is_refused_leaves_no_trace() -> None:
    env = StreamEnvironment("values")
    rows = env.from_collection([{"user": "ann"}], name="rows")
    before = env.graph
    with pytest.raises(PlanError, match="usr"):
        rows.select(col("usr"))
    assert env.graph is before


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.__name__)
def test_a_rewrite_leaves_the_program_alone(rewrite: object) -> None:
    env = StreamEnvironment("values")
    env.from_collection([{"user": "ann"}], name="rows").select("user").print()
    before = list(env.graph)
    assert callable(rewrite)
    assert rewrite(env.graph) is not env.graph
    assert list(env.graph) == before

"""Law: what a step sees does not depend on how the input was cut into epochs."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.epochs.planning.reach import UNBOUND, Reach
from penstock.runtime import ordering, task
from penstock.runtime.ports import MergedInputs
from tests.laws.ordered_programs import Program, outcome, outcome_with_restarts
from tests.laws.trying import breaks

every_program = st.builds(
    partial(Program, shape=""),
    seed=st.integers(0, 1 << 30),
    parts=st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple),
    records=st.integers(1, 60),
    keys=st.integers(1, 4),
    parallelism=st.integers(1, 3),
    slack=st.sampled_from([0, 0, 3, 20]),
    every=st.sampled_from([None, None, 2, 10, 100]),
    apart=st.sampled_from([0, 10, 300]),
    speeds=st.lists(st.sampled_from([0, 1, 5, 40]), min_size=1, max_size=3).map(tuple),
    ahead=st.integers(1, 60),
    deletes=st.booleans(),
    sets_again=st.booleans(),
    shorter=st.sampled_from([1, 1, 3, 20]),
)
SHAPES = [
    "",
    "",
    "twice",
    "spread",
    "forked",
    "past",
    "past twice",
    "spread twice",
    "forked spread",
    "apart",
    "apart twice",
    "alone",
]
MEETING = ["met", "met", "met spread", "met past", "met twice"]
"""Two streams meet in a step of two inputs."""

programs = st.builds(lambda program, shape: replace(program, shape=shape), every_program, st.sampled_from(SHAPES))
meetings = st.builds(lambda program, shape: replace(program, shape=shape), every_program, st.sampled_from(MEETING))
cuts = st.lists(st.integers(1, 40), min_size=1, max_size=2)
restarts = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 40)), min_size=1, max_size=3)


SOURCES_END_APART = Program(
    seed=0,
    parts=(1, 1),
    records=11,
    keys=1,
    parallelism=1,
    slack=0,
    every=10,
    apart=300,
    speeds=(1,),
    shape="",
    ahead=1,
    deletes=False,
    sets_again=False,
)
"""The last timer is set when it is due already, in an epoch after which nothing is left, before the one in which time ends."""


A_SOURCE_ENDS_AHEAD = replace(SOURCES_END_APART, seed=28, records=6, every=None, shorter=20)
"""A source is read to its end long before time gets to its last clock."""

EACH_HAS_STEPS_OF_ITS_OWN = replace(SOURCES_END_APART, records=5, keys=2, every=None, apart=0, speeds=(5,), shape="apart")
"""Time ends in a step after one source while it goes on after the other, and both meet further on."""


@given(programs, cuts)
@example(SOURCES_END_APART, [1])
@example(A_SOURCE_ENDS_AHEAD, [1])
@example(EACH_HAS_STEPS_OF_ITS_OWN, [1])
def test_one_output_whatever_the_cut(program: Program, cuts: list[int]) -> None:
    whole = outcome(program)
    for records in cuts:
        assert outcome(program, max_records_per_epoch=records) == whole, f"epochs of {records} records"


@given(programs, restarts)
def test_one_output_whatever_the_restarts(program: Program, runs: list[tuple[int, int]]) -> None:
    whole = outcome(program)
    with tempfile.TemporaryDirectory() as folder:
        assert outcome_with_restarts(program, Path(folder), runs) == whole


@given(meetings, cuts)
@example(replace(SOURCES_END_APART, shape="met", keys=2), [1])
@example(replace(A_SOURCE_ENDS_AHEAD, shape="met past"), [1])
def test_two_inputs_give_one_output_whatever_the_cut(program: Program, cuts: list[int]) -> None:
    whole = outcome(program)
    for records in cuts:
        assert outcome(program, max_records_per_epoch=records) == whole, f"epochs of {records} records"


@given(meetings, restarts)
def test_two_inputs_give_one_output_whatever_the_restarts(program: Program, runs: list[tuple[int, int]]) -> None:
    whole = outcome(program)
    with tempfile.TemporaryDirectory() as folder:
        assert outcome_with_restarts(program, Path(folder), runs) == whole


FAR_APART = Program(
    seed=7,
    parts=(2, 3),
    records=60,
    keys=3,
    parallelism=3,
    slack=3,
    every=2,
    apart=300,
    speeds=(1, 5, 40),
    shape="past twice",
    ahead=9,
    deletes=True,
    sets_again=True,
)


MET_FAR_APART = replace(FAR_APART, shape="met spread")


def check_far_apart(program: Program = FAR_APART) -> None:
    whole = outcome(program)
    for records in (3, 10, 40):
        assert outcome(program, max_records_per_epoch=records) == whole


def test_two_exchanges_and_sources_far_apart() -> None:
    check_far_apart()


def test_epochs_that_grow_and_shrink() -> None:
    adaptive = outcome(FAR_APART, first_records_per_epoch=2, target_epoch=0.001)
    assert adaptive == outcome(FAR_APART)


def test_it_fails_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reach, "bound", lambda self, *lanes: UNBOUND)
    breaks(check_far_apart)


def test_it_fails_when_records_are_not_merged_by_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "in_order", lambda batch: None)
    breaks(check_far_apart)


def test_it_fails_when_inputs_are_taken_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MergedInputs, "add", lambda self, port, batch: self.operator.on_input(port, batch))
    breaks(lambda: check_far_apart(MET_FAR_APART))


@pytest.mark.parametrize("program", [FAR_APART, MET_FAR_APART])
def test_rounds_do_not_matter(monkeypatch: pytest.MonkeyPatch, program: Program) -> None:
    whole = outcome(program)
    for rows in (1, 7):
        monkeypatch.setattr(task, "ROUND_ROWS", rows)
        assert outcome(program) == whole

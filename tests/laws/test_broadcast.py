"""Laws of functions with broadcast state: they give what a program without Penstock gives, whatever becomes of the job."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import FileSink
from penstock.connectors.files.reading.published import read_rows
from tests.laws.broadcast_programs import Shop, expected_points, expected_prices, points, priced, random_shop
from tests.laws.ordered_programs import _Dies, _Stopped
from tests.laws.scoped_steps import environment
from tests.properties import shared_between

runs = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5), st.integers(1, 30)), min_size=1, max_size=3)
"""Of each run of a job its parallelism, after how many epochs it dies, and how many records of an epoch at most."""

PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[Shop], list[Any]]]] = {
    "points": (points, expected_points),
    "priced": (priced, expected_prices),
}


def interrupted(folder: Path, plan: list[tuple[int, int, int]], build: Any) -> list[Any]:
    """What a program gives that dies again and again, and goes on with another parallelism."""
    for parallelism, epochs, records in [*plan, (plan[-1][0], 1 << 30, plan[-1][2])]:
        env = environment(
            parallelism, storage=str(folder / "job"), local_dir=str(folder / "local"), max_records_per_epoch=records
        )
        build(env).map(lambda row: {"row": list(row)}).sink_to(FileSink(str(folder / "out"), format="json"), name="out")
        try:
            env.execute(executor=_Dies(epochs))
            break
        except _Stopped:
            continue
    return [row["row"] for row in read_rows(folder / "out")]


@pytest.mark.parametrize("name", PROGRAMS)
@shared_between(len(PROGRAMS))
@given(st.integers(0, 1 << 30), st.integers(1, 30), runs)
def test_it_gives_what_was_worked_out(name: str, seed: int, count: int, plan: list[tuple[int, int, int]]) -> None:
    build, expected = PROGRAMS[name]
    shop = random_shop(seed, count)
    with tempfile.TemporaryDirectory() as folder:
        found = interrupted(Path(folder), plan, lambda env: build(env, shop))
    assert sorted(map(repr, found)) == sorted(repr(list(row)) for row in expected(shop))


@given(st.integers(0, 1 << 30), st.lists(st.integers(1, 30), min_size=2, max_size=2))
def test_one_partition_gives_it_in_one_order(seed: int, cuts: list[int]) -> None:
    shop = random_shop(seed, 20)
    expected = expected_points(shop)
    for records in cuts:
        found = points(environment(1, max_records_per_epoch=records), shop).execute_and_collect()
        by_key = [[row for row in rows if row[1] == key] for rows in (found, expected) for key in range(4)]
        assert by_key[:4] == by_key[4:]

"""What is in a loop is part of a snapshot: replayed, shown, saved, and dealt out anew by a restore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import FileSink, Job, StreamEnvironment, snapshots
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import PenstockError
from penstock.storage import open_storage
from tests.laws.looped_programs import reachability, reachable
from tests.laws.ordered_programs import _Dies, _Stopped
from tests.laws.scoped_steps import environment

EDGES = [(node, node + 1) for node in range(20)] + [(3, 40), (41, 42)]


def program(folder: Path, parallelism: int = 2, **settings: Any) -> StreamEnvironment:
    defaults: dict[str, Any] = {"storage": str(folder / "job"), "max_records_per_epoch": 6, "keep": 100, "max_parallelism": 16}
    env = environment(parallelism, **{**defaults, **settings})
    reachability(env, EDGES, turns=2).sink_to(FileSink(str(folder / "out"), format="json"), name="out")
    return env


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A job that died with records in its loop."""
    with pytest.raises(_Stopped):
        program(tmp_path / "first").execute(executor=_Dies(3))
    return tmp_path / "first"


def nodes(*folders: Path) -> list[int]:
    return sorted(row["node"] for folder in folders for row in read_rows(folder / "out"))


def test_every_epoch_is_reproduced(tmp_path: Path) -> None:
    program(tmp_path).execute()
    epochs = snapshots.replayable(open_storage(tmp_path / "job"))
    assert max(one.inputs[0].laps for one in epochs) > 1
    for one in epochs:
        replayed = snapshots.replay(tmp_path / "job", one.epoch, env=program(tmp_path))
        assert replayed.reproduced, replayed.verdict
    assert nodes(tmp_path) == reachable(EDGES)


def test_the_next_epoch_begins_with_what_is_in_the_loop(interrupted: Path) -> None:
    replayed = snapshots.replay(interrupted / "job", "next", env=program(interrupted), step="reach")
    assert replayed.step("reach").records_in > 0


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_savepoint_has_what_is_in_the_loop(interrupted: Path, tmp_path: Path, parallelism: int) -> None:
    saved = Job(interrupted / "job").savepoint(tmp_path / "savepoint")
    (in_flight,) = [state for state in saved.states if state.info.name == "in_flight"]
    assert (in_flight.info.step, in_flight.info.scope, in_flight.rows > 0) == ("spread", "operator", True)
    fork = tmp_path / "fork"
    program(fork, parallelism).execute(restore_from=str(tmp_path / "savepoint"))
    assert nodes(interrupted, fork) == reachable(EDGES)


def test_a_program_without_the_loop_is_refused(interrupted: Path) -> None:
    env = environment(2, storage=str(interrupted / "job"), max_parallelism=16)
    env.from_collection([1], name="edges").print()
    with pytest.raises(PenstockError, match="in_flight"):
        env.execute()

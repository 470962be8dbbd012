"""Several executors: state stays where it was, and an executor may be lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.launching import launch
from tests.spark.standalone import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def counted(folder: Path, master: str, *, kill_at: int) -> dict[str, Any]:
    told = launch("cluster", folder, str(folder / "job"), master, str(kill_at), timeout=280)
    found: dict[str, Any] = json.loads(told.strip().splitlines()[-1])
    return found


def test_state_stays_on_its_executor_and_survives_its_loss(tmp_path: Path) -> None:
    found = counted(tmp_path, "local-cluster[2,1,1024]", kill_at=14)
    hits, rebuilt = found["hits"][0], found["rebuilt"][0]
    assert found["killed"] == 1
    assert hits > 20
    assert hits / (hits + rebuilt) >= 0.8, found  # on a machine that does nothing else: 0.95


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A master and a worker on this machine."""
    with Cluster(tmp_path) as cluster:
        yield cluster.url


def test_a_standalone_cluster_runs_the_same_job(tmp_path: Path, standalone: str) -> None:
    found = counted(tmp_path, standalone, kill_at=0)
    assert found["finished"]
    assert found["hits"][0] > 20
    assert found["rebuilt"][0] <= found["hits"][0] * 0.2, found  # a busy machine places some tasks elsewhere

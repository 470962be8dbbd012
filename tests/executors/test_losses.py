"""Settings that let Spark notice soon what it has lost: on a cluster, and only where the user has not said otherwise."""

from __future__ import annotations

import pytest

from penstock.executors.spark.losses import quick_losses

FETCHING = {"spark.shuffle.io.maxRetries", "spark.shuffle.io.retryWait"}
HANGING = {
    "spark.executor.heartbeatInterval",
    "spark.storage.blockManagerHeartbeatTimeoutMs",
    "spark.network.timeoutInterval",
}


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://host", "local-cluster[2,1,1024]"])
def test_on_a_cluster(master: str) -> None:
    assert set(quick_losses(master, set())) == FETCHING | HANGING


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]"])
def test_a_local_spark_has_nothing_to_lose(master: str) -> None:
    assert quick_losses(master, set()) == {}


@pytest.mark.parametrize("name", sorted(FETCHING))
def test_what_the_user_has_set_stays(name: str) -> None:
    assert set(quick_losses("spark://host:7077", {name})) == (FETCHING | HANGING) - {name}


@pytest.mark.parametrize("name", sorted({*HANGING, "spark.network.timeout"}))
def test_timeouts_go_together(name: str) -> None:
    """An interval of ours beside a timeout of the user's could be longer than it, and Spark would not start."""
    assert set(quick_losses("spark://host:7077", {name})) == FETCHING

"""Settings that let Spark notice soon that a part of a cluster is lost, and waste no time on it.

Spark's own are made for batch jobs of an hour: a task that fetches from an executor that has died tries it three times, five
seconds apart, before anybody hears of it, and an executor that hangs is let hang for two minutes. An epoch takes a fraction of a
second.

Nothing that the user has set is touched, be it for the job, in `spark-defaults.conf` or by a broader setting
(`spark.network.timeout`).
"""

from __future__ import annotations

from collections.abc import Set

from penstock.executors.spark.master import is_local

NETWORK_TIMEOUT = "spark.network.timeout"

_FETCHING = {"spark.shuffle.io.maxRetries": "3", "spark.shuffle.io.retryWait": "250ms"}
"""What cannot be fetched is computed again, which takes an epoch's time. A connection that was dropped is tried again."""

_HANGING = {
    "spark.executor.heartbeatInterval": "3s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "30s",
    "spark.network.timeoutInterval": "5s",
}
"""An executor that has not been heard of for ten heartbeats is taken for lost, and replaced."""


def quick_losses(master: str, given: Set[str]) -> dict[str, str]:
    """The settings for a master. `given`: the names of what the user has set."""
    if is_local(master):
        return {}
    found = dict(_FETCHING)
    if not given & {NETWORK_TIMEOUT, *_HANGING}:  # they go together
        found |= _HANGING
    return {name: value for name, value in found.items() if name not in given}

"""What every tortured program is told on its command line."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock import GeneratorSource, JobResult, RestartPolicy, StreamEnvironment
from penstock.connectors.protocol import Source
from tests.torture.jobs.tapped import TappedSource


@dataclass(frozen=True, slots=True)
class Arguments:
    storage: str
    out: str
    input: str
    master: str
    parallelism: int
    size: int
    restore_from: str | None = None
    tap: str | None = None
    """The input is as long as this file says, from moment to moment: see `tapped.py`."""
    lease: float | None = None
    """Stand by with a lease of so many seconds, on a cluster where everything may fail for half a minute."""

    def source(self, function: Callable[[int], Any], *, partitions: int, batch_size: int = 4096) -> Source:
        """`function(n)` for n = 0, 1, 2, …"""
        if self.tap is not None:
            return TappedSource.of(function, self.tap, partitions=partitions, batch_size=batch_size)
        return GeneratorSource(function, count=self.size, partitions=partitions, batch_size=batch_size)

    def environment(self, name: str, **settings: Any) -> StreamEnvironment:
        """Small epochs, short chains, few epochs kept: everything that can go wrong happens often."""
        defaults: dict[str, Any] = {
            "storage": self.storage,
            "master": self.master,
            "parallelism": self.parallelism,
            "restore_from": self.restore_from,
            "keep": 4,
            "compact_after": 4,
            "restart": RestartPolicy(attempts=8, first_delay=0.05),
            "spark_config": {
                "spark.python.worker.reuse": "true",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.stage.maxConsecutiveAttempts": "8",
            },
        }
        if self.lease is not None:
            defaults |= {
                "standby": True,
                "lease": self.lease,
                "hang_after": 80.0,
                "stall_after": 15.0,
                "epoch_interval": 0.3,
                "restart": RestartPolicy(attempts=60, first_delay=0.1, longest_delay=2.0),
            }
            defaults["spark_config"] |= {"spark.cores.max": "2", "spark.executor.memory": "512m"}
        return StreamEnvironment(name, **{**defaults, **settings})


def arguments() -> Arguments:
    parser = argparse.ArgumentParser()
    for name in ("storage", "out", "input", "master"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--from", dest="restore_from")
    parser.add_argument("--tap")
    parser.add_argument("--lease", type=float)
    args = Arguments(**vars(parser.parse_args()))
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if args.lease is not None:
        logging.getLogger("penstock").setLevel(logging.INFO)  # what a standby does
    return args


def finish(result: JobResult) -> None:
    """The exit code says whether the input was read to its end."""
    print(f"finished={result.finished} epochs={result.epochs} restarts={result.restarts}", flush=True)
    sys.exit(0 if result.finished else 3)

"""What every tortured program is told on its command line."""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import dataclass
from typing import Any

from penstock import JobResult, RestartPolicy, StreamEnvironment


@dataclass(frozen=True, slots=True)
class Arguments:
    storage: str
    out: str
    input: str
    master: str
    parallelism: int
    size: int
    restore_from: str | None = None

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
        return StreamEnvironment(name, **{**defaults, **settings})


def arguments() -> Arguments:
    parser = argparse.ArgumentParser()
    for name in ("storage", "out", "input", "master"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--from", dest="restore_from")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    return Arguments(**vars(parser.parse_args()))


def finish(result: JobResult) -> None:
    """The exit code says whether the input was read to its end."""
    print(f"finished={result.finished} epochs={result.epochs} restarts={result.restarts}", flush=True)
    sys.exit(0 if result.finished else 3)

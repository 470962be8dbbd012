"""A driver whose JVM is killed under it: it starts another and goes on."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark import SparkContext

from penstock import EpochRecord
from penstock.config import RestartPolicy
from tests.laws.trying import check_exact, program


def main() -> None:
    folder = Path(sys.argv[1])
    killed: list[int] = []

    def kill_once(record: EpochRecord) -> None:
        if record.epoch == 4 and not killed:
            pid = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    env = program(folder, executor="spark", master="local[2,4]", restart=RestartPolicy(attempts=3))
    result = env.execute(listener=kill_once)
    check_exact(folder)
    print(f"finished={result.finished} killed={len(killed)} restarts={result.restarts}")


if __name__ == "__main__":
    main()

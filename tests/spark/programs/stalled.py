"""The counting job, slowly, with deadlines of its own: `stalled.py FOLDER MASTER STALL_S [freeze-epoch|freeze-end|fast]`.

The JVM is stopped (SIGSTOP) once, when the fourth epoch is about to run, or when all records have been committed, so that closing
has to do with one that does not answer.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from penstock import EpochRecord
from penstock.config import RestartPolicy
from penstock.executors.spark.executor import SparkExecutor
from penstock.runtime.messages import EpochOrder, TaskReport
from tests.laws.trying import COUNT, check_exact, program
from tests.torture.processes import of_session

STOP = timedelta(seconds=4)


def main() -> None:
    folder, master, stall_s, how = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:]
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    env = program(
        folder,
        executor="spark",
        master=master,
        max_records_per_epoch=3 if not how or "freeze-epoch" in how else 100,
        epoch_interval=timedelta(milliseconds=300),
        stall_after=timedelta(seconds=stall_s),
        stop_within=STOP,
        restart=RestartPolicy(attempts=10),
        spark_config={"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m"},
    )
    seen = 0

    def tell(record: EpochRecord) -> None:
        nonlocal seen
        seen += record.records_in
        print(f"epoch {record.epoch}", flush=True)
        if "freeze-end" in how and seen == COUNT:
            freeze()

    if "freeze-epoch" in how:
        freeze_epoch()
    result = env.execute(listener=tell)
    if result.finished:
        check_exact(folder)
    print(f"finished={result.finished} stopped={result.stopped} restarts={result.restarts}", flush=True)


def freeze() -> None:
    (java,) = [process.pid for process in of_session(os.getsid(0)) if process.is_driver_jvm]
    os.kill(java, signal.SIGSTOP)
    print("frozen", flush=True)


def freeze_epoch() -> None:
    run, runs = SparkExecutor.run, 0

    def freeze_and_run(executor: SparkExecutor, order: EpochOrder) -> list[TaskReport]:
        nonlocal runs
        runs += 1
        if runs == 4:
            freeze()
        return run(executor, order)

    SparkExecutor.run = freeze_and_run  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main()

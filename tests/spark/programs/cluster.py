"""The counting job on several executors: where state was found, before and after an executor is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from penstock import EpochRecord
from penstock.config import RestartPolicy
from tests.laws.trying import check_exact, program
from tests.torture.processes import of_session

WARM = 3


def main() -> None:
    folder, master, kill_at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    killed: list[int] = []
    hits, rebuilt = [0, 0], [0, 0]
    epochs = 0

    def watch(record: EpochRecord) -> None:
        nonlocal epochs
        epochs += 1
        if epochs > WARM:
            hits[bool(killed)] += record.local_hits
            rebuilt[bool(killed)] += record.rebuilt
        if epochs == kill_at:
            executors = [p.pid for p in of_session(os.getsid(0)) if p.is_executor_jvm]
            if executors:
                os.kill(executors[0], signal.SIGKILL)
                killed.append(executors[0])

    network = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m"}
    env = program(
        folder,
        executor="spark",
        master=master,
        parallelism=4,
        max_records_per_epoch=15,
        restart=RestartPolicy(attempts=5),
        spark_config={**network, "spark.cores.max": "2"},
    )
    result = env.execute(listener=watch)
    check_exact(folder)
    print(json.dumps({"finished": result.finished, "killed": len(killed), "hits": hits, "rebuilt": rebuilt, "epochs": epochs}))


if __name__ == "__main__":
    main()

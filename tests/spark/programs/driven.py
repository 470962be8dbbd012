"""The counting job, slowly: `driven.py FOLDER drive|standby spark|inline [PARALLELISM...]`, rescaled to these while it runs."""

from __future__ import annotations

import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

from penstock import EpochRecord, Job
from penstock.errors import PenstockError
from tests.laws.trying import check_exact, program

LEASE = timedelta(seconds=1)


class Said:
    """Prints what a standby says, and every epoch."""

    def __call__(self, record: EpochRecord) -> None:
        print(f"epoch {record.epoch}", flush=True)

    def standing_by(self, name: str, text: str) -> None:
        print(text, flush=True)


def rescale(folder: Path, parallelisms: list[int]) -> None:
    job = None
    while job is None:
        time.sleep(0.1)
        try:
            job = Job(folder / "storage")
            if not job.epochs():
                job = None
        except PenstockError:
            continue
    for parallelism in parallelisms:
        print(job.rescale(parallelism).message, flush=True)


def main() -> None:
    folder, mode, executor = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    parallelisms = [int(text) for text in sys.argv[4:]]
    env = program(
        folder,
        executor=executor,
        master="local[2,4]" if executor == "spark" else None,
        standby=mode == "standby",
        lease=LEASE,
        max_records_per_epoch=6,
        epoch_interval=timedelta(milliseconds=150),
        spark_config={"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"},
    )
    if parallelisms:
        threading.Thread(target=rescale, args=(folder, parallelisms), daemon=True).start()
    result = env.execute(listener=Said())
    if result.finished:
        check_exact(folder)
    print(f"finished={result.finished} epochs={result.epochs}", flush=True)


if __name__ == "__main__":
    main()

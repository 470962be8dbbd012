"""The counting job, slowly: `driven.py FOLDER drive|standby spark|inline [PARALLELISM...]`, rescaled to these while it runs."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from pathlib import Path

from penstock import EpochRecord, Job
from tests.laws.trying import check_exact, program

LEASE = timedelta(seconds=1)


class Said:
    """Prints what a standby says, and every epoch; rescales after the first one."""

    def __init__(self, folder: Path, parallelisms: list[int]) -> None:
        self._folder = folder
        self._parallelisms = parallelisms

    def __call__(self, record: EpochRecord) -> None:
        print(f"epoch {record.epoch}", flush=True)
        if self._parallelisms:
            threading.Thread(target=rescale, args=(self._folder, self._parallelisms), daemon=True).start()
            self._parallelisms = []

    def standing_by(self, name: str, text: str) -> None:
        print(text, flush=True)


def rescale(folder: Path, parallelisms: list[int]) -> None:
    job = Job(folder / "storage")
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
    result = env.execute(listener=Said(folder, parallelisms))
    if result.finished:
        check_exact(folder)
    print(f"finished={result.finished} epochs={result.epochs}", flush=True)


if __name__ == "__main__":
    main()

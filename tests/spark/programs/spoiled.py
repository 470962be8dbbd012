"""The counting job: `spoiled.py FOLDER [EPOCH]`. After that epoch its newest state file is damaged, unseen by a listing;
two epochs later workers and local stores are gone, as on another host."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from penstock import EpochRecord
from tests.laws.trying import manifests, program
from tests.torture.processes import kill, of_session, python_workers


def newest_state_file(folder: Path) -> Path:
    chain = next(chain for stage in manifests(folder)[-1].state.chains for chain in stage if chain)
    return folder / "storage" / chain[-1].name


def spoil(path: Path) -> None:
    """A bit in the middle; the listing shows nothing of it."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def main() -> None:
    folder = Path(sys.argv[1])
    spoilt_after = int(sys.argv[2]) if len(sys.argv) > 2 else None

    def watch(record: EpochRecord) -> None:
        if record.epoch == spoilt_after:
            path = newest_state_file(folder)
            spoil(path)
            print(f"spoilt: {path}", flush=True)
        if spoilt_after is not None and record.epoch == spoilt_after + 2:
            shutil.rmtree(folder / "local")
            for worker in python_workers(of_session(os.getsid(0))):  # which have the stores open
                kill(worker.pid)

    network = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    env = program(folder, executor="spark", master="local[2,4]", compact_after=100, keep=30, pipeline=0, spark_config=network)
    env.execute(listener=watch)


if __name__ == "__main__":
    main()

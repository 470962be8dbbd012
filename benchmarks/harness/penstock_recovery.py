"""The job that `recovery.py` kills parts of: a steady stream of events, counted by key, exactly once to files.

Every committed epoch is a line of a file (`told`): when it was committed, and how many records it has read. What a
standby says is a line, too.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from harness.penstock_jobs import Count, Numbered
from penstock import EpochRecord, FileSink, GeneratorSource, StreamEnvironment
from penstock.config import RestartPolicy


class Told:
    """Writes down what the driver tells."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def __call__(self, record: EpochRecord) -> None:
        if record.records_in:
            self._write({"at": record.committed_ms / 1000, "records": record.records_in})

    def standing_by(self, name: str, text: str) -> None:
        self._write({"said": text})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    out = Path(parameters["out"])
    env = StreamEnvironment(
        "recovery",
        storage=str(out / "storage"),
        parallelism=2,
        executor="spark",
        master=parameters["master"],
        standby=parameters["standby"],
        lease=timedelta(seconds=parameters["lease"]),
        local_dir=str(out / "state"),
        restart=RestartPolicy(attempts=20),
        spark_config={"spark.driver.memory": "1g", "spark.executor.memory": "600m", "spark.cores.max": "2"},
    )
    rate = parameters["rate"]
    source = GeneratorSource(Numbered(parameters["keys"]), count=rate * parameters["seconds"], rate=rate)
    events = env.from_source(source, name="in")
    events.key_by("key").process(Count(), name="count").sink_to(FileSink(str(out / "out"), format="json"), name="out")
    result = env.execute(listener=Told(Path(parameters["told"])))
    return {"finished": result.finished}

"""Flink SQL: MATCH_RECOGNIZE of three stages, from CSV to CSV, in a mini cluster in PyFlink's JVM.

The same settings and the same clock as `peers/flink_windows.py`: a streaming job over a bounded source, parallelism 2, state on
the heap, a checkpoint every 10 s to files; the job's run time as the cluster reports it, after the same job over a small input.
"Anything in between" is a reluctant `X*?`: MATCH_RECOGNIZE has no other word for it.
"""

# mypy: disable-error-code="import-not-found, misc, no-any-unimported"

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from harness.contenders import progress
from harness.processes import peak_memory

from peers.flink_windows import configuration_of


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    os.environ["JVM_ARGS"] = "-Xmx6g"
    os.environ["FLINK_LOG_DIR"] = str(Path("flink-log").resolve())
    Path("flink-log").mkdir()
    _run(parameters, parameters["warm_folder"], "warm")
    progress("warm")
    with peak_memory() as peak:
        seconds = _run(parameters, parameters["folder"], "out")
    return {"events": parameters["events"], "seconds": seconds, "peak_memory": peak()}


def _run(parameters: dict[str, Any], folder: str, name: str) -> float:
    from pyflink.table import EnvironmentSettings, TableEnvironment

    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration_of(parameters)).build()
    tables = TableEnvironment.create(settings)
    tables.execute_sql(f"""
        CREATE TABLE events (
          key BIGINT, ts BIGINT, kind BIGINT,
          happened AS TO_TIMESTAMP_LTZ(ts, 3),
          WATERMARK FOR happened AS happened - INTERVAL '{parameters["slack"]}' SECOND
        ) WITH ('connector' = 'filesystem', 'path' = '{Path(folder).as_uri()}', 'format' = 'csv')
        """)
    tables.execute_sql(f"""
        CREATE TABLE pairs (key BIGINT, `first` BIGINT, `last` BIGINT)
        WITH ('connector' = 'filesystem', 'path' = '{Path(parameters["out"], name).as_uri()}', 'format' = 'csv')
        """)
    define = ", ".join(
        f"{stage} AS {stage}.kind >= {start} AND {stage}.kind < {stop}"
        for stage, (start, stop) in zip("ABC", parameters["stages"], strict=True)
    )
    pattern = "A B C" if parameters["strict"] else "A X*? B Y*? C"
    result = tables.execute_sql(f"""
        INSERT INTO pairs SELECT key, `first`, `last` FROM events MATCH_RECOGNIZE (
          PARTITION BY key ORDER BY happened
          MEASURES A.ts AS `first`, C.ts AS `last`
          ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
          PATTERN ({pattern}) WITHIN INTERVAL '{parameters["within_ms"] // 60_000}' MINUTE
          DEFINE {define}
        )
        """)
    result.wait()
    return float(result.get_job_client().get_job_execution_result().result().get_net_runtime()) / 1000

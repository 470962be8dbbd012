"""Flink SQL: count and sum of each window by its table functions, from CSV to CSV, in a mini cluster in PyFlink's JVM.

A streaming job over a bounded source, parallelism 2, state on the heap, a checkpoint every 10 s to files. The planner aggregates
before and after the exchange where it can (not for sessions). Each of the two source tasks reads one file, a partition over all
of the time: Flink's file source gives files to tasks in no order, and the watermark is the task's, so with more files than tasks
records would be late. CSV, as Flink's Parquet format is not in the package.

Timed: the run time of the job as the cluster reports it, from its creation to its end, when all files are committed. A mini
cluster, and with it the deployment of tasks (about half a second), is new for each job; parsing, planning and starting the
cluster are not in it. Before that the same job has run over a small input in the same JVM. Tasks do not wait for another
checkpoint after the end of input (up to 10 s): the sink commits what is left at the end of input.
"""

# mypy: disable-error-code="import-not-found, misc, no-any-unimported"

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from harness.contenders import progress

CHECKPOINT_SECONDS = 10


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    os.environ["JVM_ARGS"] = "-Xmx6g"
    os.environ["FLINK_LOG_DIR"] = str(Path("flink-log").resolve())
    Path("flink-log").mkdir()
    _run(parameters, parameters["warm_folder"], "warm")
    progress("warm")
    seconds = _run(parameters, parameters["folder"], "out")
    return {"events": parameters["events"], "seconds": seconds, "checkpoint_seconds": CHECKPOINT_SECONDS}


def _run(parameters: dict[str, Any], folder: str, name: str) -> float:
    from pyflink.table import EnvironmentSettings, TableEnvironment

    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration_of(parameters)).build()
    )
    tables.execute_sql(f"""
        CREATE TABLE events (
          key BIGINT, ts BIGINT, v DOUBLE,
          happened AS TO_TIMESTAMP_LTZ(ts, 3),
          WATERMARK FOR happened AS happened - INTERVAL '{parameters["slack"]}' SECOND
        ) WITH ('connector' = 'filesystem', 'path' = '{Path(folder).as_uri()}', 'format' = 'csv')
        """)
    tables.execute_sql(f"""
        CREATE TABLE windows (key BIGINT, `start` TIMESTAMP(3), `end` TIMESTAMP(3), `count` BIGINT, total DOUBLE)
        WITH ('connector' = 'filesystem', 'path' = '{Path(parameters["out"], name).as_uri()}', 'format' = 'csv')
        """)
    result = tables.execute_sql(f"""
        INSERT INTO windows SELECT key, window_start, window_end, COUNT(*), SUM(v)
        FROM TABLE({_window(parameters)}) GROUP BY key, window_start, window_end
        """)
    result.wait()
    return float(result.get_job_client().get_job_execution_result().result().get_net_runtime()) / 1000


def configuration_of(parameters: dict[str, Any]) -> Any:
    """How all of Flink's contenders run."""
    from pyflink.common import Configuration

    configuration = Configuration()
    for key, value in {
        "restart-strategy.type": "none",  # otherwise a job that fails is started again for ever
        "parallelism.default": str(parameters["processes"]),
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "taskmanager.memory.managed.size": "1g",
        "execution.checkpointing.interval": f"{CHECKPOINT_SECONDS} s",
        "execution.checkpointing.dir": Path("checkpoints").resolve().as_uri(),
        "execution.checkpointing.checkpoints-after-tasks-finish": "false",
        "io.tmp.dirs": os.environ["TMPDIR"],
    }.items():
        configuration.set_string(key, value)
    return configuration


def _window(parameters: dict[str, Any]) -> str:
    match parameters["windows"]:
        case "session":
            return f"SESSION(TABLE events PARTITION BY key, DESCRIPTOR(happened), INTERVAL '{parameters['gap']}' SECOND)"
        case "sliding":
            slide, size = (f"INTERVAL '{parameters[name]}' SECOND" for name in ("slide", "size"))
            return f"HOP(TABLE events, DESCRIPTOR(happened), {slide}, {size})"
    return f"TUMBLE(TABLE events, DESCRIPTOR(happened), INTERVAL '{parameters['size']}' SECOND)"

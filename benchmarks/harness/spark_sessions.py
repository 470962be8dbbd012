"""The Spark session of the peers."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession


def session(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A quiet local session with what makes Python on Spark fast."""
    builder = SparkSession.builder.master(master)
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.shuffle.compress": "false",
        "spark.broadcast.compress": "false",
    }
    for name, value in {**quiet, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark

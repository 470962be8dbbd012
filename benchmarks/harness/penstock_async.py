"""The async case of the joins benchmark: `async_io.py` in a process of its own."""

from __future__ import annotations

from typing import Any

from async_io import PARALLELISM, case_async

from penstock.executors.spark.session import make_session


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    network = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    spark = make_session("asks", f"local[{PARALLELISM}]", network)
    try:
        return case_async(spark, parameters["calls"], parameters["runs"])
    finally:
        spark.stop()

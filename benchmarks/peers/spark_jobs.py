"""The plainest two-stage RDD job, again and again on a Spark with its own settings, for a given time: what `recovery.py` kills
parts of to see what of a recovery is Spark's own. Every job that ends is a line of a file (`told`).
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

from peers.rdd_floor import _receive, _same, _send


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    until = time.time() + parameters["seconds"]
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.executor.memory": "600m"}
    settings["spark.executorEnv.PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    conf = SparkConf().setMaster(parameters["master"]).setAppName("jobs").setAll(list(settings.items()))
    context = SparkContext(conf=conf)
    context.setLogLevel("OFF")
    base = context.parallelize(range(2), 2)
    jobs = 0
    with open(Path(parameters["told"]), "a", encoding="utf-8") as told:
        while time.time() < until:
            base.mapPartitionsWithIndex(_send).partitionBy(2, _same).mapPartitionsWithIndex(_receive).collect()
            jobs += 1
            told.write(json.dumps({"at": time.time(), "records": 1}) + "\n")
            told.flush()
    context.stop()
    return {"jobs": jobs}

"""Where the Penstock that was measured is from: in the driver, in Spark's workers and in child processes."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession


class WrongOriginError(Exception):
    """Not the Penstock that was to be measured."""


def check_origin(source: Path) -> None:
    for where, file in origins().items():
        if not Path(file).resolve().is_relative_to(source.resolve()):
            raise WrongOriginError(f"{where}: Penstock is from {file}, not from {source}")


def origins() -> dict[str, str]:
    command = [sys.executable, "-c", "import penstock; print(penstock.__file__)"]
    found = {"driver": _file(0), "child process": subprocess.check_output(command, text=True).strip()}
    session = SparkSession.getActiveSession()
    if session is not None:
        (found["Spark worker"],) = session.sparkContext.parallelize([0], 1).map(_file).collect()
    return found


def _file(_: int) -> str:
    return str(importlib.import_module("penstock").__file__)

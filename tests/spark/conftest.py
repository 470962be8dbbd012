"""One Spark session for all tests here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.executors.spark.session import make_session


@pytest.fixture(scope="session")
def shuffle_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark-local")


@pytest.fixture(scope="session")
def spark(shuffle_folder: Path) -> Iterator[SparkSession]:
    """`local[2,4]`: two cores, four attempts for each task."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
    config = {"spark.local.dir": str(shuffle_folder), "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    session = make_session("tests", "local[2,4]", config)
    yield session
    session.stop()

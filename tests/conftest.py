"""What all tests share: examples of properties, workers, places for temporary files, a Spark session.

No test asserts how long something takes: machines are busy.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from penstock.state.stores.holding import held_for_tasks, release_for_tasks
from penstock.state.stores.store import open_stores
from tests.properties import is_property, register_profiles, too_few_examples
from tests.servers.fixtures import kafka, postgres
from tests.spreading import Spread, spread

__all__ = ["kafka", "postgres"]

MEMORY = Path("/dev/shm")
ENOUGH = 4 << 30
"""Bytes that must be free there."""
GROUPS = "groups.json"

os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
os.environ.setdefault("PENSTOCK_CLASS_ARCHIVE", "on")
"""Tests start Java some hundred times, and none runs long enough for its better compiler to pay."""

register_profiles()
settings.load_profile("test")


def _own_place() -> Path:
    """A folder for temporary files that no other worker has, and so for local stores; in memory, where there is room.

    Tests commit tens of thousands of epochs: on a disk they mostly wait for it.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        place = Path(os.environ["TMPDIR"], worker)
        place.mkdir()
    else:
        roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ENOUGH
        if roomy:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))  # where pytest makes `tmp_path`
        place = Path(tempfile.mkdtemp(prefix="penstock-tests-", dir=MEMORY if roomy else None))
    os.environ["TMPDIR"] = str(place)
    tempfile.tempdir = None  # to be found anew
    return place


_PLACE = _own_place()


def pytest_unconfigure() -> None:
    shutil.rmtree(_PLACE, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    few: list[str] = []
    for item in items:
        if isinstance(item, pytest.Function) and is_property(item):
            item.add_marker("property")
            few += filter(None, [too_few_examples(item)])
    if few:
        listed = "\n  ".join(few)
        raise pytest.UsageError(
            f"properties with fewer examples than the profile's {settings().max_examples} (see tests/properties.py):\n  {listed}"
        )
    if os.environ.get("PYTEST_XDIST_WORKER"):
        spread(items, _PLACE.parent / GROUPS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spread:
    return Spread(config, log, _PLACE / GROUPS)


@pytest.fixture(autouse=True, scope="module")
def _stores_are_closed() -> Iterator[None]:
    """Runs in this process leave local stores open and hold their folders; with more than 1,024 files open, select() fails."""
    yield
    for store in open_stores():
        if store.idle:
            store.close()
    for folder in held_for_tasks():
        release_for_tasks(folder)


@pytest.fixture(autouse=True)
def _full_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """`penstock savepoint` gives way to all others; called in this process, it would for the rest of the tests."""
    monkeypatch.setattr("penstock.cli.commands.savepoint.lower_priority", lambda process: None)


@pytest.fixture(scope="session")
def shuffle_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark-local")


@pytest.fixture(scope="session")
def spark(shuffle_folder: Path) -> Iterator[Any]:
    """The Spark session of this process, for all tests that need one. `local[2,4]`: two cores, four attempts for each task."""
    from penstock.executors.spark.session import make_session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    config = {
        "spark.local.dir": str(shuffle_folder),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    session = make_session("tests", "local[2,4]", config)
    yield session
    session.stop()

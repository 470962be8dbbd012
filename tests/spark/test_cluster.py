"""Several executors: state stays where it was, and an executor may be lost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from penstock.executors.spark.java import ensure_java_home
from tests.spark.launching import launch
from tests.torture.processes import kill_session

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def counted(folder: Path, master: str, *, kill_at: int) -> dict[str, Any]:
    told = launch("cluster", folder, str(folder / "job"), master, str(kill_at), timeout=280)
    found: dict[str, Any] = json.loads(told.strip().splitlines()[-1])
    return found


def test_state_stays_on_its_executor_and_survives_its_loss(tmp_path: Path) -> None:
    found = counted(tmp_path, "local-cluster[2,1,1024]", kill_at=14)
    hits, rebuilt = found["hits"][0], found["rebuilt"][0]
    assert found["killed"] == 1
    assert hits > 20
    assert hits / (hits + rebuilt) >= 0.95, found


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A master and a worker on this machine."""
    ensure_java_home()
    port = _free_port()
    home = os.path.dirname(pyspark.__file__)
    command = os.path.join(home, "bin", "spark-class")
    if not os.path.exists(command):
        pytest.skip(f"pyspark has no {command}: no standalone cluster can be started")
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_WORKER_DIR"] = environment["SPARK_LOCAL_DIRS"] = str(tmp_path)
    deploy = "org.apache.spark.deploy"
    loopback = ["--host", "127.0.0.1", "--port"]
    commands = [
        [command, f"{deploy}.master.Master", *loopback, str(port), "--webui-port", str(_free_port())],
        [command, f"{deploy}.worker.Worker", *loopback, str(_free_port()), "--webui-port", str(_free_port())],
    ]
    commands[1] += ["--cores", "2", "--memory", "1500m", f"spark://127.0.0.1:{port}"]
    log = open(tmp_path / "cluster.log", "wb")  # noqa: SIM115 - the processes write to it
    started = []
    try:
        for one in commands:
            started.append(
                subprocess.Popen(one, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            )
            _wait_for(tmp_path / "cluster.log", "I have been elected leader" if len(started) == 1 else "Successfully registered")
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in started:
            kill_session(process.pid)
            process.wait()
        log.close()


def test_a_standalone_cluster_runs_the_same_job(tmp_path: Path, standalone: str) -> None:
    found = counted(tmp_path, standalone, kill_at=0)
    assert found["finished"]
    assert found["hits"][0] > 20
    assert found["rebuilt"][0] <= found["hits"][0] * 0.05, found


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in log.read_text(errors="replace"):
        if time.monotonic() > deadline:
            pytest.skip(f"the standalone cluster did not start: {log.read_text(errors='replace')[-1500:]}")
        time.sleep(0.1)

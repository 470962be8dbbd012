"""A standalone Spark cluster on this machine: a master and its workers, each of which can be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

from penstock.executors.spark.java import ensure_java_home
from tests.torture.processes import kill_session

_DEPLOY = "org.apache.spark.deploy"


class Cluster:
    """Ends all that it started when it is left."""

    def __init__(self, folder: Path, *, workers: int = 1, cores: int = 2) -> None:
        ensure_java_home()
        home = os.path.dirname(pyspark.__file__)
        self._command = os.path.join(home, "bin", "spark-class")
        if not os.path.exists(self._command):
            pytest.skip(f"pyspark has no {self._command}: no standalone cluster can be started")
        self._environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable}
        self._environment["SPARK_WORKER_DIR"] = self._environment["SPARK_LOCAL_DIRS"] = str(folder)
        self._folder = folder
        self._port = _free_port()
        self._started: list[subprocess.Popen[bytes]] = []
        self._masters = 0
        self._workers = workers
        self._cores = cores
        self.url = f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Cluster:
        self.start_master()
        for number in range(self._workers):
            self._start_worker(f"worker-{number}")
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._started:
            kill_session(process.pid)
            process.wait()

    @property
    def sessions(self) -> list[int]:
        """Those of all that was started: a worker's executors are in its own."""
        return [process.pid for process in self._started]

    def start_master(self) -> None:
        """One that knows nothing of those before it, on the same address."""
        self._masters += 1
        name = f"master-{self._masters}"
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(_free_port())]
        self._master = self._start(name, f"{_DEPLOY}.master.Master", *where)
        self._wait_for(name, "I have been elected leader")

    def kill_master(self) -> None:
        self._master.send_signal(signal.SIGKILL)
        self._master.wait()

    def _start_worker(self, name: str) -> None:
        where = ["--host", "127.0.0.1", "--port", str(_free_port()), "--webui-port", str(_free_port())]
        size = ["--cores", str(self._cores), "--memory", "1500m"]
        self._start(name, f"{_DEPLOY}.worker.Worker", *where, *size, self.url)
        self._wait_for(name, "Successfully registered")

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                [self._command, *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _wait_for(self, name: str, text: str) -> None:
        log, deadline = self._log(name), time.monotonic() + 60
        while text not in log.read_text(errors="replace"):
            if time.monotonic() > deadline:
                pytest.skip(f"the standalone cluster did not start: {log.read_text(errors='replace')[-1500:]}")
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])

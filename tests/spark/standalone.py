"""A standalone Spark cluster on this machine: a master and its workers, each of which can be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest

from penstock.executors.spark.java import ensure_java_home
from tests.torture.processes import kill_session

_DEPLOY = "org.apache.spark.deploy"


class Cluster:
    """Ends all that it started when it is left."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 1,
        cores: int = 2,
        memory: str = "1500m",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        ensure_java_home()
        home = os.path.dirname(pyspark.__file__)
        self._command = os.path.join(home, "bin", "spark-class")
        if not os.path.exists(self._command):
            pytest.skip(f"pyspark has no {self._command}: no standalone cluster can be started")
        self._environment = {**os.environ, **(environment or {})}
        self._environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable}
        self._environment["SPARK_WORKER_DIR"] = self._environment["SPARK_LOCAL_DIRS"] = str(folder)
        self._folder = folder
        self._port = _free_port()
        self._started: list[subprocess.Popen[bytes]] = []
        self._masters = 0
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._wanted = workers
        self._cores = cores
        self._memory = memory
        self.url = f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Cluster:
        self.start_master()
        for number in range(self._wanted):
            self.start_worker(number)
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

    def wait_for_workers(self) -> None:
        """Until a new master knows every worker that lives. They end the executors that it knows nothing of."""
        living = sum(worker.poll() is None for worker in self._workers.values())
        self._wait_for(f"master-{self._masters}", "Registering worker", times=living)

    def kill_master(self) -> None:
        self._master.send_signal(signal.SIGKILL)
        self._master.wait()

    def start_worker(self, number: int, *, wait: bool = True) -> None:
        """One that knows nothing of those before it. `wait`: until the master knows it."""
        name = f"worker-{number}-{len(self._started)}"
        where = ["--host", "127.0.0.1", "--port", str(_free_port()), "--webui-port", str(_free_port())]
        size = ["--cores", str(self._cores), "--memory", self._memory]
        self._workers[number] = self._start(name, f"{_DEPLOY}.worker.Worker", *where, *size, self.url)
        if wait:
            self._wait_for(name, "Successfully registered")

    def kill_worker(self, number: int, *, host: bool = False) -> None:
        """`host`: with all that it has started, as when its machine is lost; otherwise its executors find out for themselves."""
        worker = self._workers[number]
        if host:
            kill_session(worker.pid)
        else:
            worker.send_signal(signal.SIGKILL)
        worker.wait()

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

    def _wait_for(self, name: str, text: str, times: int = 1) -> None:
        log, deadline = self._log(name), time.monotonic() + 60
        while log.read_text(errors="replace").count(text) < times:
            if time.monotonic() > deadline:
                pytest.skip(f"the standalone cluster did not start: {log.read_text(errors='replace')[-1500:]}")
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])

"""A job between real servers, and everything killed at random: the driver with all that it has started, a Python worker, the
broker.

While that goes on messages arrive. Afterwards every message must have been counted once: what a `read_committed` consumer
sees of a key is 1, 2, 3, …, each once and in order, with the right sums.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.connectors.kafka.topics import values
from tests.servers.kafka import KafkaServer
from tests.torture.processes import kill, kill_session, of_session, python_workers

ROOT = Path(__file__).resolve().parents[3]
KEYS = 20
PARTITIONS = 4
RATE = 400
"""Messages a second, while there are kills."""
TARGETS = ("driver", "worker", "broker")


@dataclass(slots=True)
class Outcome:
    kills: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    lost: int = 0
    duplicated: int = 0
    problems: list[str] = field(default_factory=list)


class Feeder:
    """Sends messages until it is stopped; the broker may go and come back meanwhile. Idempotent, so each is there once."""

    def __init__(self, server: KafkaServer, topic: str) -> None:
        self._server = server
        self._topic = topic
        self._stop = threading.Event()
        self.sent: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        settings = {"enable.idempotence": True, "message.timeout.ms": 0, "linger.ms": 5, "log_level": 2}
        producer = Producer({"bootstrap.servers": self._server.bootstrap, **settings})
        number = 0
        while not self._stop.wait(0.05):
            for _ in range(RATE // 20):
                key = f"k{number % KEYS}"
                self.sent[key] += 1
                body = json.dumps({"key": key, "n": self.sent[key]})
                producer.produce(self._topic, body, key, partition=number % KEYS % PARTITIONS)
                number += 1
            producer.poll(0)
        assert producer.flush(120) == 0, "the feeder could not send all messages"


class Driver:
    """The job's driver: started again whenever it is gone."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self._folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.log = folder / "driver.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ensure(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        for name in ("tmp", "local", "spark"):
            (self._folder / name).mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "PENSTOCK_LOCAL_DIR": str(self._folder / "local"),
            "SPARK_LOCAL_DIRS": str(self._folder / "spark"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(self._folder / "tmp"),
            "PYSPARK_PYTHON": sys.executable,
        }
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "tests" / "torture" / "connectors" / "job.py"), *self._arguments],
                env=environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self._process is not None:
            kill_session(self._process.pid)
            self._process.wait()

    def kill_a_worker(self, dice: random.Random) -> bool:
        workers = python_workers(of_session(self.pid))
        return bool(workers) and kill(dice.choice(workers).pid)

    def told(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


def run_campaign(
    folder: Path, kills: int, seed: int, say: Callable[[str], None], *, atomic: str = "epoch", limit_s: float = 900.0
) -> Outcome:
    """Torture one job."""
    dice = random.Random(seed)
    outcome = Outcome()
    deadline = time.monotonic() + limit_s
    server = KafkaServer(folder / "kafka")
    server.start()
    driver: Driver | None = None
    try:
        server.create_topic("in", PARTITIONS)
        server.create_topic("out", PARTITIONS)
        arguments = ["--storage", str(folder / "storage"), "--bootstrap", server.bootstrap, "--source", "in", "--target", "out"]
        driver = Driver(folder, [*arguments, "--master", "local[2,4]", "--atomic", atomic])
        driver.ensure()
        feeder = Feeder(server, "in")
        plan = [target for _ in range(kills) for target in TARGETS][:kills]
        dice.shuffle(plan)
        for target in plan:
            _wait(dice.uniform(1.0, 5.0), driver, deadline)
            if target == "worker" and not _worker_dies(driver, dice, deadline):
                outcome.problems.append("there was no worker to kill")
            elif target == "driver":
                driver.kill()
            elif target == "broker":
                server.kill()
                _wait(dice.uniform(0.5, 4.0), driver, deadline)
                server.start()
            outcome.kills[target] += 1
            say(f"killed the {target} ({sum(outcome.kills.values())}); {driver.starts} drivers so far")
            if time.monotonic() > deadline:
                outcome.problems.append("there was no time for all kills")
                break
        feeder.finish()
        outcome.messages = sum(feeder.sent.values())
        say(f"{outcome.messages} messages were sent; waiting for the last of them")
        _settle(server, driver, feeder.sent, outcome, deadline + 180)
    finally:
        if driver is not None:
            driver.kill()
            if outcome.problems or outcome.lost or outcome.duplicated:
                say(driver.told())
        server.kill()
    return outcome


def _worker_dies(driver: Driver, dice: random.Random, deadline: float) -> bool:
    while time.monotonic() < deadline:
        driver.ensure()
        if driver.kill_a_worker(dice):
            return True
        time.sleep(0.2)
    return False


def _wait(seconds: float, driver: Driver, deadline: float) -> None:
    until = min(deadline, time.monotonic() + seconds)
    while time.monotonic() < until:
        driver.ensure()
        time.sleep(0.1)


def _settle(server: KafkaServer, driver: Driver, sent: Counter[str], outcome: Outcome, deadline: float) -> None:
    """Wait until everything is there, and a little longer for what should not be; then judge."""
    total = sum(sent.values())
    found: list[Any] = []
    while time.monotonic() < deadline:
        _wait(1.0, driver, deadline)
        found = values(server, "out")
        if len(found) >= total:
            _wait(3.0, driver, deadline)
            found = values(server, "out")
            break
    judge(found, sent, outcome)


def judge(found: list[Any], sent: Counter[str], outcome: Outcome) -> None:
    """Pure: what a consumer has seen against what was sent."""
    seen: dict[str, list[Any]] = {key: [] for key in sent}
    for row in found:
        seen.setdefault(row["key"], []).append(row)
    for key, rows in seen.items():
        counts = Counter(row["count"] for row in rows)
        outcome.lost += sum(1 for n in range(1, sent[key] + 1) if n not in counts)
        outcome.duplicated += sum(number - 1 for number in counts.values())
        if [row["count"] for row in rows] != sorted(row["count"] for row in rows):
            outcome.problems.append(f"{key} is out of order")
        if any(row["total"] != row["count"] * (row["count"] + 1) // 2 or row["count"] > sent[key] for row in rows):
            outcome.problems.append(f"a total of {key} is wrong")

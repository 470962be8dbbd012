"""The whole job over a backlog: from the first message to the last one committed. Starting Spark is not counted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Literal

from harness.kafka.broker import Broker
from harness.kafka.load import Load, committed_messages
from harness.peers import SPARK_KAFKA, python_of
from harness.places import BENCHMARKS, ROOT, fresh_folder
from harness.progress import say
from harness.report import Report
from tests.servers.packages import maven_jars

JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
LIMIT_S = 600


def penstock(broker: Broker, load: Load, report: Report, atomic: Literal["epoch", "partition"] = "epoch") -> float:
    """Events a second."""
    target = broker.topic()
    say(f"Penstock, atomic={atomic}")
    program = [sys.executable, str(BENCHMARKS / "harness" / "kafka" / "penstock_job.py"), "windows"]
    told = run([*program, broker.bootstrap, load.topic, target, str(fresh_folder("kafka", "penstock")), atomic])
    _verify(broker, load, target, report, "Penstock", twice_allowed=False)
    return load.events / float(told["seconds"])


def spark(broker: Broker, load: Load, report: Report) -> float:
    target = broker.topic()
    say("Spark Structured Streaming")
    told = run([*spark_program(), "windows", broker.bootstrap, load.topic, target, str(fresh_folder("kafka", "spark"))])
    _verify(broker, load, target, report, "Spark", twice_allowed=True)
    return load.events / float(told["seconds"])


def spark_program() -> list[str]:
    """In a virtualenv of its own, with the connector's jars."""
    python = python_of(SPARK_KAFKA)
    jars = sorted(maven_jars("spark-kafka-4.2.0", JARS, alone=True).glob("*.jar"))
    return [str(python), str(BENCHMARKS / "peers" / "spark_kafka.py"), ",".join(map(str, jars))]


def run(command: list[str]) -> dict[str, float]:
    """What a contender tells in its last line."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise SystemExit(f"{Path(command[1]).name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    told: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return told


def _verify(broker: Broker, load: Load, topic: str, report: Report, who: str, *, twice_allowed: bool) -> None:
    """Every window that is over, once, with its count."""
    found: Counter[tuple[str, int]] = Counter()
    expected = load.expected
    seen = 0
    for message in committed_messages(broker, topic):
        row = json.loads(message.value())
        place = (row["key"], int(row["window_start"]))
        if place in expected:
            seen += 1
            found[place] = row["count"] if twice_allowed else found[place] + row["count"]
    if found != expected or (seen != len(expected) and not twice_allowed):
        report.problems.append(f"{who}: {seen} counts of {len(expected)} windows, {len(expected - found)} too few or too low")

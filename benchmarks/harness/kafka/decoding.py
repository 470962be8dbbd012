"""The source alone: JSON decoded to columns, beside a plain loop of the client with `json.loads`, on two processes each."""

from __future__ import annotations

import json
import multiprocessing
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from harness.kafka.broker import Broker
from harness.kafka.load import PARTITIONS, Load
from harness.progress import say
from harness.report import Report

PROCESSES = 2


@dataclass
class Event:
    key: str
    at: int
    celsius: float
    note: str


def penstock(broker: Broker, load: Load, report: Report) -> float:
    """Messages a second."""
    say("decode: Penstock's source")
    return _timed(_read_columns, broker, load, report)


def plain(broker: Broker, load: Load, report: Report) -> float:
    say("decode: confluent-kafka and json.loads")
    return _timed(_read_dicts, broker, load, report)


def _timed(read: Any, broker: Broker, load: Load, report: Report) -> float:
    """Of the slower process, from when both are ready; every message is counted, and a sum of them checked."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(target=read, args=(broker.bootstrap, load.topic, number, barrier, answers)) for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    told = [answers.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    count = sum(each[0] for each in told)
    total = sum(each[1] for each in told)
    expected = sum(n % 400 for n in range(load.events)) / 10
    if count != load.events or abs(total - expected) > 1e-6 * expected:
        report.problems.append(f"decode: {count} messages of {load.events}, sum {total} instead of {expected}")
    return load.events / max(each[2] for each in told)


def _read_columns(bootstrap: str, topic: str, number: int, barrier: Any, answers: Any) -> None:
    from penstock.connectors.formats import JsonFormat
    from penstock.connectors.kafka import KafkaSource
    from penstock.connectors.kafka.cluster import Cluster
    from penstock.connectors.protocol import Split
    from penstock.records import Columns

    source = KafkaSource(bootstrap, topic, value=JsonFormat(Event))
    mine = [(topic, partition) for partition in range(number, PARTITIONS, PROCESSES)]
    ends = Cluster(source).latest(mine)
    reader = source.reader()
    count, total = 0, 0.0
    barrier.wait()
    began = time.perf_counter()
    for place in mine:
        split = Split(partition=f"{place[0]}-{place[1]}", what=[*place, 0, ends[place]])
        for batch in reader.read(split):
            assert isinstance(batch, Columns)
            count += len(batch)
            total += batch.data.column("celsius").to_numpy().sum()
    answers.put((count, float(total), time.perf_counter() - began))


def _read_dicts(bootstrap: str, topic: str, number: int, barrier: Any, answers: Any) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "plain", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    mine = [TopicPartition(topic, partition, 0) for partition in range(number, PARTITIONS, PROCESSES)]
    barrier.wait()
    began = time.perf_counter()
    consumer.assign(mine)
    count, total, ended = 0, 0.0, 0
    loads = json.loads
    while ended < len(mine):
        for message in consumer.consume(10_000, 0.1):
            if message.error() is not None:
                ended += 1
                continue
            row = loads(message.value())
            count += 1
            total += row["celsius"]
    answers.put((count, total, time.perf_counter() - began))
    consumer.close()

"""The contract suite over Kafka, with a real broker."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.kafka.consumers import close_consumers
from penstock.storage import LocalStorage
from penstock.testing.contracts import SINK_CHECKS, SOURCE_CHECKS, SinkCase, SourceCase
from penstock.testing.contracts.sink_checks import SinkCheck
from penstock.testing.contracts.source_checks import SourceCheck
from tests.connectors.kafka.topics import new_topic, put, values
from tests.servers.kafka import KafkaServer


@pytest.fixture(scope="module")
def numbers(kafka: KafkaServer) -> str:
    """Two partitions; one with transactions, committed and aborted, between its messages."""
    topic = new_topic(kafka, 2)
    put(kafka, topic, [{"n": n} for n in range(4)], partition=0, transaction="a")
    put(kafka, topic, [{"n": -n} for n in range(3)], partition=0, transaction="a", abort=True)
    put(kafka, topic, [{"n": n} for n in range(4, 7)], partition=0, transaction="a")
    put(kafka, topic, [{"n": n} for n in range(10, 15)], partition=1)
    return topic


@pytest.mark.parametrize("stop", [None, "now"])
@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_source(check: SourceCheck, stop: str | None, kafka: KafkaServer, numbers: str, tmp_path: Path) -> None:
    source = KafkaSource(kafka.bootstrap, numbers, stop=stop, commit_offsets=False, batch_size=3)  # type: ignore[arg-type]
    expected = {f"{numbers}-0": [{"n": n} for n in range(7)], f"{numbers}-1": [{"n": n} for n in range(10, 15)]}
    check(SourceCase(source=source, storage=LocalStorage(tmp_path), expected=expected))
    close_consumers()


@pytest.mark.parametrize("atomic", ["epoch", "partition"])
@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_sink(check: SinkCheck, atomic: str, kafka: KafkaServer, tmp_path: Path) -> None:
    targets = count()

    def make() -> SinkCase:
        topic = new_topic(kafka)
        sink = KafkaSink(kafka.bootstrap, topic, atomic=atomic)  # type: ignore[arg-type]
        storage = LocalStorage(tmp_path / str(next(targets)))
        return SinkCase(sink=sink, storage=storage, visible=lambda: [row["id"] for row in values(kafka, topic)])

    check(make)


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_sink_that_sends_at_once(check: SinkCheck, kafka: KafkaServer, tmp_path: Path) -> None:

    def make() -> SinkCase:
        topic = new_topic(kafka)
        sink = KafkaSink(kafka.bootstrap, topic, delivery="at-least-once")
        storage = LocalStorage(tmp_path / topic)
        visible = lambda: [row["id"] for row in values(kafka, topic)]  # noqa: E731
        return SinkCase(sink=sink, storage=storage, visible=visible, guarantee="at-least-once")

    check(make)

"""What a Kafka sink does, with a real broker."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from penstock import StreamEnvironment, Watermarks
from penstock.changes import RowKind
from penstock.connectors.formats.raw_messages import RawFormat
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.kafka.transactions import Ledger
from penstock.errors import ConfigError, SinkError
from penstock.ids import Epoch
from penstock.records import Records
from penstock.storage import LocalStorage, Storage
from tests.connectors.kafka.topics import messages, new_topic, put, values
from tests.connectors.sinking import committer, stage
from tests.servers.kafka import KafkaServer


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path / "job")


def deliver(sink: KafkaSink, storage: Storage, epoch: int, rows: Any) -> None:
    publisher = committer(sink, storage)
    publisher.commit(Epoch(epoch), [stage(sink, storage, epoch, rows)])
    publisher.close()


def by_header(record: dict[str, Any]) -> dict[str, str | bytes]:
    return {"room": record["room"], "raw": b"\x00"}


def by_room(record: dict[str, Any]) -> str:
    return str(record["topic"])


def test_keys_headers_and_time(kafka: KafkaServer, storage: Storage) -> None:
    topic = new_topic(kafka, 4)
    sink = KafkaSink(kafka.bootstrap, topic, key="room", headers=by_header, compression="zstd")
    rows = [{"room": f"r{n % 5}", "n": n} for n in range(50)]
    deliver(sink, storage, 1, Records(rows, np.arange(50, dtype=np.int64) + 1_700_000_000_000))
    found = messages(kafka, topic)
    assert len(found) == 50
    assert all(message.key().decode() == f"r{(message.timestamp()[1] - 1_700_000_000_000) % 5}" for message in found)
    assert found[0].headers()[1] == ("raw", b"\x00")
    homes = defaultdict(set)
    for message in found:
        homes[message.key()].add(message.partition())
    assert all(len(partitions) == 1 for partitions in homes.values())
    reference = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    where: dict[Any, Any] = {}
    for key in homes:
        reference.produce(
            topic, b"{}", key, on_delivery=lambda error, message: where.update({message.key(): message.partition()})
        )
    reference.flush(30)
    assert {key: {partition} for key, partition in where.items()} == homes, "as Java's clients choose"


def test_a_topic_for_each_record(kafka: KafkaServer, storage: Storage) -> None:
    one, other = new_topic(kafka), new_topic(kafka)
    with pytest.raises(ConfigError, match="is a function"):
        KafkaSink(kafka.bootstrap, by_room)
    sink = KafkaSink(kafka.bootstrap, by_room, ledger=one)
    deliver(sink, storage, 1, [{"topic": one, "n": 1}, {"topic": other, "n": 2}])
    assert (values(kafka, one), values(kafka, other)) == ([{"topic": one, "n": 1}], [{"topic": other, "n": 2}])


def test_deletions_are_tombstones(kafka: KafkaServer, storage: Storage) -> None:
    topic = new_topic(kafka)
    sink = KafkaSink(kafka.bootstrap, topic, key="room", upsert=True)
    kinds = np.array([RowKind.INSERT.code, RowKind.UPDATE_AFTER.code, RowKind.DELETE.code], dtype=np.int8)
    rows = Records([{"room": "a", "n": 1}, {"room": "a", "n": 2}, {"room": "a", "n": 2}], kinds=kinds)
    deliver(sink, storage, 1, rows)
    assert [message.value() for message in messages(kafka, topic)] == [b'{"room":"a","n":1}', b'{"room":"a","n":2}', None]


def test_half_an_epoch_is_never_seen(kafka: KafkaServer, storage: Storage) -> None:
    """A sink that dies in the middle leaves a transaction open; the next one aborts it, and sends all."""
    topic = new_topic(kafka)
    sink = KafkaSink(kafka.bootstrap, topic)
    deliver(sink, storage, 1, [{"n": 1}])
    prepared = stage(sink, storage, 2, [{"n": n} for n in range(10)])
    dying: Any = committer(sink, storage)
    ledger: Ledger = dying._ledger("all")
    ledger._producer.begin_transaction()
    for _ in range(5):
        ledger._producer.produce(topic, b'{"n": "half"}')
    ledger._producer.flush(30)
    assert [row["n"] for row in values(kafka, topic)] == [1]
    assert len(values(kafka, topic, committed=False)) == 6
    successor = committer(sink, storage)
    successor.commit(Epoch(2), [prepared])
    assert [row["n"] for row in values(kafka, topic)] == [1, *range(10)]
    dying.commit(Epoch(2), [stage(sink, storage, 2, [{"n": 99}])])
    assert [row["n"] for row in values(kafka, topic)] == [1, *range(10)]


def test_a_lost_record_is_named(kafka: KafkaServer, storage: Storage) -> None:
    topic = new_topic(kafka)
    sink = KafkaSink(kafka.bootstrap, topic)
    deliver(sink, storage, 1, [{"n": 1}])
    (name,) = [path.path for path in storage.list("sinks") if "/ledgers/" in path.path]
    storage.create(f"{name.rpartition('/')[0]}/other", b"")  # one that Kafka has never heard of
    publisher: Any = committer(sink, storage)
    with pytest.raises(SinkError, match="no record any more"):
        publisher._ledger("other")


def test_what_cannot_be_sent_is_named(kafka: KafkaServer, storage: Storage) -> None:
    with pytest.raises(SinkError, match="there is no topic nowhere"):
        deliver(KafkaSink(kafka.bootstrap, "nowhere"), storage, 1, [{"n": 1}])
    sink = KafkaSink(kafka.bootstrap, new_topic(kafka), value=RawFormat())
    with pytest.raises(SinkError, match="writes bytes, not dict"):
        stage(sink, storage, 1, [{"n": 1}])


@pytest.mark.parametrize("atomic", ["epoch", "partition"])
def test_from_topic_to_topic_by_way_of_state(atomic: Any, kafka: KafkaServer, tmp_path: Path) -> None:
    """A job that is stopped and started again, at another parallelism: every count is there once."""
    source, target = new_topic(kafka, 3), new_topic(kafka, 2)
    storage = str(tmp_path / "job")

    def run(parallelism: int) -> None:
        env = StreamEnvironment("counts", executor="inline", parallelism=parallelism, storage=storage, max_records_per_epoch=40)
        words = env.from_source(KafkaSource(kafka.bootstrap, source), watermarks=Watermarks.monotonous(), name="in")
        counts = words.map(lambda row: (row["word"], 1)).key_by(0).sum(1, name="count")
        out = KafkaSink(kafka.bootstrap, target, key="word", atomic=atomic)
        counts.map(lambda pair: {"word": pair[0], "n": pair[1]}).sink_to(out, name="out")
        env.execute(until_idle=True)

    for turn, parallelism in enumerate((2, 3)):
        for partition in range(3):
            rows = [{"word": f"w{n % 4}"} for n in range(30)]
            put(kafka, source, rows, partition=partition, timestamp=1_700_000_000_000 + turn)
        run(parallelism)
    found = values(kafka, target)
    assert len(found) == 180
    counted = defaultdict(list)
    for row in found:
        counted[row["word"]].append(row["n"])
    assert {word: sorted(numbers) for word, numbers in counted.items()} == {
        f"w{n}": list(range(1, (48 if n < 2 else 42) + 1)) for n in range(4)
    }

"""What a Kafka source can be asked for, with a real broker."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from penstock.connectors.formats.json_messages import JsonFormat
from penstock.connectors.formats.raw_messages import RawFormat, TextFormat
from penstock.connectors.kafka import KafkaSource
from penstock.connectors.protocol import Limits
from penstock.errors import ConfigError, SourceError
from penstock.records import Columns
from tests.connectors.driving import Drive, context
from tests.connectors.kafka.topics import new_topic, put
from tests.servers.kafka import KafkaServer

HOUR_MS = 3_600_000


@dataclass
class Reading:
    room: str
    celsius: float


def drive(source: KafkaSource, **more: Any) -> Drive:
    return Drive(source, context("/nowhere", **more))


def read(source: KafkaSource) -> list[Any]:
    d = drive(source)
    d.run()
    return d.all


def numbered(*numbers: int) -> list[dict[str, int]]:
    return [{"n": n} for n in numbers]


def test_columns_of_a_class_come_with_the_time_of_the_message(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    put(
        kafka,
        topic,
        [{"room": "attic", "celsius": 14.0, "more": 1}, {"room": "cellar", "celsius": 9.5}],
        timestamp=1_700_000_000_123,
    )
    d = drive(KafkaSource(kafka.bootstrap, topic, value=JsonFormat(Reading), stop="now"))
    d.run()
    assert d.all == [Reading("attic", 14.0), Reading("cellar", 9.5)]
    assert isinstance(d.batches[0], Columns)
    assert d.batches[0].timestamps is not None
    assert d.batches[0].timestamps.tolist() == [1_700_000_000_123] * 2


def test_metadata_keys_and_headers(kafka: KafkaServer) -> None:
    topic = new_topic(kafka, 2)
    put(kafka, topic, numbered(1), key="a", headers={"trace": b"x"}, timestamp=5, partition=1)
    put(kafka, topic, numbered(2), timestamp=6, partition=1)
    source = KafkaSource(
        kafka.bootstrap,
        topic,
        metadata=["key", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers"],
        stop="now",
    )
    first, second = read(source)
    assert first == {
        "n": 1,
        "key": "a",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": 5,
        "timestamp_type": "create",
        "headers": [{"name": "trace", "value": b"x"}],
    }
    assert (second["key"], second["offset"], second["headers"]) == (None, 1, [])
    renamed = KafkaSource(
        kafka.bootstrap, topic, value=JsonFormat(Reading), metadata={"at": "offset"}, on_bad_record="skip", stop="now"
    )
    assert read(renamed) == []


def test_metadata_beside_columns_become_a_class(kafka: KafkaServer) -> None:
    @dataclass
    class Placed:
        room: str
        celsius: float
        where: int

    topic = new_topic(kafka)
    put(kafka, topic, [{"room": "attic", "celsius": 14.0}] * 2)
    source = KafkaSource(
        kafka.bootstrap, topic, value=JsonFormat(Reading), metadata={"where": "offset"}, row_class=Placed, stop="now"
    )
    assert read(source) == [Placed("attic", 14.0, 0), Placed("attic", 14.0, 1)]


def test_log_append_time(kafka: KafkaServer) -> None:
    topic = new_topic(kafka, message_timestamp_type="LogAppendTime")
    put(kafka, topic, numbered(1), timestamp=5)
    (row,) = read(KafkaSource(kafka.bootstrap, topic, metadata=["timestamp", "timestamp_type"], stop="now"))
    assert row["timestamp_type"] == "log_append"
    assert row["timestamp"] > 1_700_000_000_000


def test_starts(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    for n, hours in ((0, 1), (1, 2), (2, 3)):
        put(kafka, topic, numbered(n), timestamp=hours * HOUR_MS)

    def first_of(**how: Any) -> list[Any]:
        return read(KafkaSource(kafka.bootstrap, topic, stop="now", **how))

    assert first_of() == numbered(0, 1, 2)
    assert first_of(start="latest") == []
    assert first_of(start=datetime.fromtimestamp(2 * 3600, UTC)) == numbered(1, 2)
    assert first_of(start=datetime.fromtimestamp(2 * 3600 + 1, UTC)) == numbered(2)
    assert first_of(start=datetime(2100, 1, 1, tzinfo=UTC)) == []
    assert first_of(start={f"{topic}:0": 2}) == numbered(2)
    with pytest.raises(SourceError, match=f"an offset is given for {topic}:7"):
        first_of(start={f"{topic}:7": 0})
    assert first_of(start="group", group="never-seen") == numbered(0, 1, 2)
    admin = kafka.admin()
    offsets = ConsumerGroupTopicPartitions("seen", [TopicPartition(topic, 0, 2)])
    admin.alter_consumer_group_offsets([offsets])["seen"].result(10)
    assert first_of(start="group", group="seen") == numbered(2)


def test_stops(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    for n, hours in ((0, 1), (1, 2), (2, 3)):
        put(kafka, topic, numbered(n), timestamp=hours * HOUR_MS)

    def all_of(stop: Any) -> list[Any]:
        return read(KafkaSource(kafka.bootstrap, topic, stop=stop))

    assert all_of(datetime.fromtimestamp(3 * 3600, UTC)) == numbered(0, 1)
    assert all_of({f"{topic}:0": 1}) == numbered(0)
    bounded = drive(KafkaSource(kafka.bootstrap, topic, stop="now"))
    bounded.step(Limits(records=1, bytes=1 << 20))
    put(kafka, topic, numbered(3))
    bounded.crash()
    bounded.run()
    assert bounded.all == numbered(0, 1, 2), "where it stops was fixed at the first plan"


def test_what_comes_later_is_read_later(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    d = drive(KafkaSource(kafka.bootstrap, topic, start="latest"))
    first = d.plan()
    assert not first.splits
    assert first.wake_ms is not None
    put(kafka, topic, numbered(1))
    assert d.plan().splits, "the start does not move while nothing is committed"
    d.step()
    put(kafka, topic, numbered(2))
    d.crash()
    d.step()
    assert d.all == numbered(1, 2)


def test_topics_of_a_pattern_and_partitions_are_found_while_it_runs(kafka: KafkaServer) -> None:
    prefix = new_topic(kafka)
    put(kafka, prefix, numbered(1))
    d = drive(KafkaSource(kafka.bootstrap, pattern=f"{prefix}.*", start="latest", discover=1.0))
    d.step()
    kafka.create_topic(f"{prefix}-more", 1)
    put(kafka, f"{prefix}-more", numbered(2))
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(prefix, 3)])[prefix].result(10)
    put(kafka, prefix, numbered(3), partition=2)
    for _ in range(100):  # the broker tells of new ones after a moment
        d.now_ms += 2000
        d.step()
        if len(d.all) == 2:
            break
        time.sleep(0.05)
    assert sorted(row["n"] for row in d.all) == [2, 3], "new partitions are read from their beginning"
    assert set(d.plan().partitions) == {f"{prefix}-0", f"{prefix}-1", f"{prefix}-2", f"{prefix}-more-0"}


def test_deleted_messages_are_named_and_the_choice_is_kept(kafka: KafkaServer, caplog: pytest.LogCaptureFixture) -> None:
    topic = new_topic(kafka)
    put(kafka, topic, numbered(*range(6)))

    def behind(**how: Any) -> Drive:
        d = drive(KafkaSource(kafka.bootstrap, topic, **how))
        d.step(Limits(records=1, bytes=1 << 20))
        return d

    failing, going_on, newest = behind(), behind(on_lost="earliest"), behind(on_lost="latest")
    admin = kafka.admin()
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    deleted.result(10)
    for d in (failing, going_on, newest):
        d.crash()
    with pytest.raises(SourceError, match="3 messages of partition 0") as lost:
        failing.plan()
    assert "on_lost" in lost.value.hint
    with caplog.at_level(logging.WARNING):
        going_on.step()
    assert going_on.all == numbered(0, 4, 5)
    assert "messages 1 to 3" in caplog.text
    newest.step()
    assert newest.all == numbered(0)


def test_another_topic_of_the_same_name_is_named(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    put(kafka, topic, numbered(1), timestamp=1000)
    d = drive(KafkaSource(kafka.bootstrap, topic))
    d.now_ms = 10 * HOUR_MS
    d.step()
    earliest, by_time = (
        drive(KafkaSource(kafka.bootstrap, topic, on_recreated=choice, overlap=timedelta(hours=1)))
        for choice in ("earliest", "timestamp")
    )
    for other in (earliest, by_time):
        other.position = d.position
    kafka.delete_topic(topic)
    for _ in range(100):
        try:
            kafka.create_topic(topic, 2, retention_ms="-1")
            break
        except Exception:
            time.sleep(0.1)
    for n, hours in ((1, 1), (2, 9), (3, 11)):
        put(kafka, topic, numbered(n), timestamp=hours * HOUR_MS)
    d.crash()
    with pytest.raises(SourceError, match="is another one than before") as named:
        d.plan()
    assert "1 partitions\nnow id" in named.value.detail
    earliest.step()
    assert earliest.all == numbered(1, 2, 3)
    by_time.step()
    assert by_time.all == numbered(2, 3), "from an hour before it had been read up to"


def test_no_topic_is_an_error_that_names_it(kafka: KafkaServer) -> None:
    with pytest.raises(SourceError, match="there is no topic nowhere"):
        drive(KafkaSource(kafka.bootstrap, "nowhere")).plan()


def test_open_transactions_wait_and_aborted_ones_are_not_seen(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    put(kafka, topic, numbered(1), transaction="t")
    put(kafka, topic, numbered(2), transaction="t", abort=True)
    assert read(KafkaSource(kafka.bootstrap, topic, stop="now")) == numbered(1)
    assert read(KafkaSource(kafka.bootstrap, topic, stop="now", isolation="read_uncommitted")) == numbered(1, 2)


def test_tombstones(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    put(kafka, topic, [{"n": 1}, None], key="k")
    with pytest.raises(SourceError, match="tombstone"):
        read(KafkaSource(kafka.bootstrap, topic, stop="now"))
    assert read(KafkaSource(kafka.bootstrap, topic, stop="now", tombstones="skip")) == numbered(1)
    kept = read(KafkaSource(kafka.bootstrap, topic, stop="now", tombstones="keep", metadata=["key"]))
    assert kept == [{"n": 1, "key": "k"}, {"key": "k"}]
    assert read(KafkaSource(kafka.bootstrap, topic, stop="now", tombstones="keep", value=RawFormat())) == [b'{"n": 1}', None]
    assert read(KafkaSource(kafka.bootstrap, topic, stop="now", tombstones="skip", value=TextFormat())) == ['{"n": 1}']


def test_limits_share_what_an_epoch_may_take(kafka: KafkaServer) -> None:
    topic = new_topic(kafka, 3)
    for partition, number in ((0, 100), (1, 3), (2, 100)):
        put(kafka, topic, numbered(*range(number)), partition=partition)
    planned = drive(KafkaSource(kafka.bootstrap, topic)).plan(Limits(records=43, bytes=1 << 30))
    assert {split.partition: split.records for split in planned.splits} == {f"{topic}-0": 20, f"{topic}-1": 3, f"{topic}-2": 20}
    assert planned.backlog == 160
    assert set(planned.more or ()) == {f"{topic}-0", f"{topic}-2"}
    full = Limits(records=43, bytes=1 << 30, full=frozenset({f"{topic}-0"}))
    assert f"{topic}-0" not in {split.partition for split in drive(KafkaSource(kafka.bootstrap, topic)).plan(full).splits}


def test_a_rate_is_kept(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    put(kafka, topic, numbered(*range(100)))
    d = drive(KafkaSource(kafka.bootstrap, topic, rate=10))
    for _ in range(5):
        d.step()
        d.now_ms += 500
    assert len(d.all) == 10 + 4 * 5


def test_the_group_is_told(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    put(kafka, topic, numbered(1, 2, 3))
    d = drive(KafkaSource(kafka.bootstrap, topic, group="watched"))
    d.step()
    d.enumerator.close()
    request = ConsumerGroupTopicPartitions("watched", [TopicPartition(topic, 0)])
    admin = kafka.admin()
    (future,) = admin.list_consumer_group_offsets([request]).values()
    assert [place.offset for place in future.result(10).topic_partitions] == [3]


def test_positions_of_this_release_are_read(kafka: KafkaServer) -> None:
    d = drive(KafkaSource(kafka.bootstrap, new_topic(kafka)))
    for position in ({"topics": {}, "version": 9}, {"topics": 7}):
        d.position = position
        with pytest.raises(SourceError, match="position of the Kafka source"):
            d.plan()


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"start": "middle"}, "start='middle'"),
        ({"start": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"start": {"topic": 1}}, "is not an offset"),
        ({"stop": 5}, "stop=5"),
        ({"start": "group"}, "needs a group"),
        ({"metadata": ["colour"]}, "has no 'colour'"),
        ({"on_lost": "shrug"}, "on_lost='shrug'"),
        ({"pattern": "x.*"}, "reads topics"),
        ({"options": {"sasl.password": "open"}}, "is a secret"),
        ({"options": {"isolation.level": "x"}}, "is not yours to set"),
        ({"rate": 0}, "rate=0"),
    ],
)
def test_what_makes_no_sense_is_refused(how: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        KafkaSource("localhost:9092", "topic", **how)


def test_a_broker_that_is_away_is_nothing_to_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody listens there."""
    d = drive(KafkaSource("127.0.0.1:1", "topic", options={"socket.connection.setup.timeout.ms": "1000"}))
    d.position = json.loads('{"version": 1, "topics": {"topic": {"id": "x", "next": [7], "caught_up_ms": []}}}')
    with caplog.at_level(logging.WARNING):
        planned = d.plan()
    assert (planned.splits, planned.position, planned.exhausted) == ((), d.position, False)
    assert planned.wake_ms == d.now_ms + 1000
    assert "does not answer" in caplog.text
    assert not d.enumerator.idle()

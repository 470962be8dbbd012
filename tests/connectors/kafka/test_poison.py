"""Messages that cannot be read: what the source's policy says is done with each, and nothing else is lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock import DataStream, StreamEnvironment
from penstock.cli.app import app
from penstock.connectors import FileSink, read_output
from penstock.connectors.formats.avro_messages import AvroFormat
from penstock.connectors.formats.json_messages import JsonFormat
from penstock.connectors.formats.messages import MessageFormat
from penstock.connectors.formats.schema_registry import SchemaRegistry
from penstock.connectors.kafka import KafkaSink, KafkaSource, replay_dead_letters
from penstock.connectors.protocol import RejectedRecord
from penstock.errors import PenstockError, PlanError
from tests.connectors.formats.registry import RegistryServer
from tests.connectors.kafka.topics import new_topic, put, values
from tests.servers.kafka import KafkaServer


@dataclass
class Reading:
    room: str
    celsius: float


GOOD = [{"room": f"r{n}", "celsius": float(n)} for n in range(40)]
DEEP = b'{"room": "a", "celsius": 1.0, "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
LARGE = b'{"room": "' + b"x" * 10_000_000 + b'", "celsius": 1.0}'

POISON: dict[str, bytes] = {
    "bad JSON": b'{"room": "a", ',
    "wrong type": b'{"room": "a", "celsius": "warm"}',
    "missing field": b'{"room": "a"}',
    "null": b'{"room": null, "celsius": 1.0}',
    "invalid UTF-8": b'{"room": "\xff\xfe", "celsius": 1.0}',
    "NaN": b'{"room": "a", "celsius": NaN}',
    "deep nesting": DEEP,
    "empty": b"",
    "no object": b"[1, 2]",
    "two objects": b'{"room": "a", "celsius": 1.0}{"room": "b", "celsius": 1.0}',
    "two lines": b'{"room": "a", "celsius": 1.0}\n{"room": "b", "celsius": 1.0}',
    "half an object": b'{"room": "a",',
    "raw line end": b'{"room": "a\nb", "celsius": 1.0}',
}
STRICT = {
    "duplicate keys": b'{"room": "a", "room": "b", "celsius": 1.0}',
    "unknown field": b'{"room": "a", "celsius": 1.0, "more": 1}',
}


@dataclass
class At:
    at: datetime


def run(
    kafka: KafkaServer, topic: str, policy: Any, folder: Path, value: MessageFormat, **limits: Any
) -> tuple[list[Any], list[Any]]:
    """The records and the dead letters of a topic."""
    env = StreamEnvironment("poison", executor="inline", parallelism=2, storage=str(folder / "job"), **limits)
    stream = env.from_source(KafkaSource(kafka.bootstrap, topic, value=value, stop="now", on_bad_record=policy), name="in")
    if policy == "dead_letter":
        stream.dead_letters().sink_to(FileSink(str(folder / "letters")))
    stream.sink_to(FileSink(str(folder / "out")))
    env.execute()
    letters: Any = read_output(str(folder / "letters")) if policy == "dead_letter" else []
    return list(read_output(str(folder / "out"))), list(letters)


def between(poison: list[bytes]) -> list[Any]:
    """Poison among good records."""
    mixed: list[Any] = list(GOOD)
    for number, each in enumerate(poison):
        mixed.insert(1 + 2 * number, each)
    return mixed


@pytest.mark.parametrize("strict", [False, True])
def test_json(strict: bool, kafka: KafkaServer, tmp_path: Path) -> None:
    bad = {**POISON, **(STRICT if strict else {})}
    topic = new_topic(kafka)
    put(kafka, topic, between(list(bad.values())))
    format = JsonFormat(Reading, strict=strict)
    with pytest.raises(PenstockError, match="cannot be read"):
        run(kafka, topic, "fail", tmp_path / "fail", format)
    rows, _ = run(kafka, topic, "skip", tmp_path / "skip", format, max_records_per_epoch=7)
    assert rows == GOOD
    rows, letters = run(kafka, topic, "dead_letter", tmp_path / "letters", format, max_records_per_epoch=7)
    assert rows == GOOD
    assert [letter["position"]["offset"] for letter in letters] == [1 + 2 * n for n in range(len(bad))]
    assert all(letter["error"] and letter["rejected_ms"] for letter in letters)


def test_what_is_not_poison(kafka: KafkaServer, tmp_path: Path) -> None:
    """Unusual, and right: large, pretty, twice the same field where that is allowed."""
    topic = new_topic(kafka, max_message_bytes=str(24 << 20))
    pretty = json.dumps(GOOD[0], indent=2).encode()
    put(kafka, topic, [*GOOD[:3], LARGE, pretty, STRICT["duplicate keys"], STRICT["unknown field"]])
    rows, letters = run(kafka, topic, "dead_letter", tmp_path, JsonFormat(Reading))
    assert letters == []
    assert [row["room"] for row in rows] == ["r0", "r1", "r2", "x" * 10_000_000, "r0", "b", "a"]


def test_a_year_beyond_all_years(kafka: KafkaServer, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    put(kafka, topic, [{"at": "2026-01-01T00:00:00"}, {"at": "10000-01-01T00:00:00"}, {"at": "2026-01-02T00:00:00"}])
    rows, letters = run(kafka, topic, "dead_letter", tmp_path, JsonFormat(At))
    assert (len(rows), len(letters)) == (2, 1)


def _key_of(letter: Any) -> tuple[str, bytes]:
    return "letter", letter.key


def test_null_keys_and_bad_keys(kafka: KafkaServer) -> None:
    topic = new_topic(kafka)
    put(kafka, topic, GOOD[:1])
    put(kafka, topic, GOOD[1:2], key=b"\xff\xfe")
    put(kafka, topic, GOOD[2:3], key="good")
    env = StreamEnvironment("keys", executor="inline", parallelism=1)
    source = KafkaSource(kafka.bootstrap, topic, metadata=["key"], stop="now", on_bad_record="dead_letter")
    stream = env.from_source(source)
    letters: DataStream[Any] = stream.dead_letters().map(_key_of)
    found = stream.map(lambda row: (row["key"], row["room"])).union(letters).execute_and_collect()
    assert sorted(found, key=str) == sorted([(None, "r0"), ("good", "r2"), ("letter", b"\xff\xfe")], key=str)


def test_avro_with_an_unknown_schema(kafka: KafkaServer, tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "Reading",
        "fields": [{"name": "room", "type": "string"}, {"name": "celsius", "type": "double"}],
    }
    with RegistryServer() as registry:
        format = AvroFormat(json.dumps(schema), registry=SchemaRegistry(registry.url), subject="readings-value")
        topic = new_topic(kafka)
        env = StreamEnvironment("avro", executor="inline", parallelism=1, storage=str(tmp_path / "writing"))
        env.from_collection(GOOD[:3]).sink_to(KafkaSink(kafka.bootstrap, topic, value=format))
        env.execute()
        put(kafka, topic, [b"\x00\x00\x00\x00\x63rest", b"\x01no magic", b"\x00\x00\x00\x00\x01\xff"])
        rows, letters = run(kafka, topic, "dead_letter", tmp_path, AvroFormat(registry=SchemaRegistry(registry.url)))
    assert rows == GOOD[:3]
    assert ["knows no schema 99" in letters[0]["error"], "does not begin with" in letters[1]["error"], len(letters)] == [
        True,
        True,
        3,
    ]


def test_dead_letters_must_go_somewhere(kafka: KafkaServer) -> None:
    env = StreamEnvironment("x", executor="inline", parallelism=1)
    env.from_source(KafkaSource(kafka.bootstrap, "any", on_bad_record="dead_letter"), name="in").print()
    with pytest.raises(PlanError, match="dead letters of the source 'in' go nowhere"):
        env.execute()


def test_dead_letters_are_sent_again_once(kafka: KafkaServer, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    put(kafka, topic, [GOOD[0], {"room": "a"}], key="k")
    folder = tmp_path / "letters"
    _, letters = run(kafka, topic, "dead_letter", tmp_path, JsonFormat(Reading))
    assert len(letters) == 1
    mended = new_topic(kafka)
    command = ["dead-letters", "replay", str(folder), "--bootstrap", kafka.bootstrap, "--topic", mended]
    shown = CliRunner().invoke(app, command)
    assert (shown.exit_code, shown.output.strip()) == (0, f"1 dead letter was sent to {mended}")
    again = CliRunner().invoke(app, command)
    assert "0 dead letters were sent" in again.output
    assert values(kafka, mended) == [{"room": "a"}]
    back = CliRunner().invoke(app, ["dead-letters", "replay", str(folder), "--bootstrap", kafka.bootstrap])
    assert back.exit_code == 0
    assert values(kafka, topic) == [GOOD[0], {"room": "a"}, {"room": "a"}]
    listed = CliRunner().invoke(app, ["dead-letters", "list", str(folder)])
    assert f"{topic}" in listed.output


def test_letters_of_another_system_need_a_topic(kafka: KafkaServer) -> None:
    letter = RejectedRecord(system="files", position={"path": "x"}, value=b"?", error="bad")
    with pytest.raises(PenstockError, match="not of a topic of Kafka"):
        replay_dead_letters([letter], kafka.bootstrap, place="x")

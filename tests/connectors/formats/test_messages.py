"""Formats of messages: what is encoded is decoded, what is bad is found alone, and the rest is there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.formats import (
    AvroFormat,
    CsvFormat,
    DebeziumFormat,
    JsonFormat,
    ProtobufFormat,
    RawFormat,
    SchemaRegistry,
    TextFormat,
)
from penstock.connectors.formats.messages import MessageFormat, Unreadable, decoded
from penstock.errors import ConfigError, SinkError, SourceError
from penstock.plan import job_pickle
from penstock.records import Columns, Records
from tests.connectors.formats.registry import RegistryServer

MODULE = "tests.connectors.formats.readings_messages:Reading"


@dataclass
class Reading:
    room: str
    celsius: float
    note: str | None = None


def rows_of(format: MessageFormat, payloads: list[bytes]) -> tuple[list[Any], list[int]]:
    """The rows, and which payloads are bad."""
    rows: list[Any] = []
    bad = []
    for each in decoded(job_pickle.loads(job_pickle.dumps(format)).decoder(), payloads):
        if isinstance(each, Unreadable):
            bad.append(each.index)
        else:
            assert each[0] == len(rows) + len(bad), "in order"
            rows += each[1].values()
    return rows, bad


def encoded(format: MessageFormat, rows: list[Any]) -> list[bytes]:
    return format.encoder().encode(Records(rows))


GOOD = b'{"room": "a", "celsius": 1.5}'
SOME_JSON = st.sampled_from(
    [
        (GOOD, True),
        (b' {"room": "a", "celsius": 1.5} ', True),
        (b'{\n"room": "a",\n"celsius": 1.5}', True),
        (b'{"room": "a", "celsius": 1.5, "more": {"x": [1]}}', True),
        (b'{"room": "}\\n{", "celsius": 2}', True),
        (b"", False),
        (b"\n", False),
        (b"{", False),
        (b'{"room": "a",', False),
        (b'"celsius": 1.5}', False),
        (b'{"room": "a", "celsius": 1.5}{"room": "b", "celsius": 1}', False),
        (b'{"room": "a", "celsius": 1.5}\n{"room": "b", "celsius": 1}', False),
        (b'{"room": "a", "celsius": NaN}', False),
        (b'{"room": "a", "celsius": 1e999}', False),
        (b'{"room": "a", "celsius": "x"}', False),
        (b'{"room": null, "celsius": 1}', False),
        (b'{"room": "\xff", "celsius": 1}', False),
        (b"null", False),
    ]
)


@given(st.lists(SOME_JSON, max_size=12))
def test_json_is_judged_message_by_message(chosen: list[tuple[bytes, bool]]) -> None:
    """Whatever stands beside it, a payload is good or bad, and means the same."""
    format = JsonFormat(Reading)
    rows, bad = rows_of(format, [payload for payload, _ in chosen])
    assert bad == [i for i, (_, good) in enumerate(chosen) if not good]
    assert rows == [rows_of(format, [payload])[0][0] for payload, good in chosen if good]


def test_json_of_plain_fields_is_columns() -> None:
    (found,) = decoded(JsonFormat(Reading).decoder(), [GOOD] * 3)
    assert not isinstance(found, Unreadable)
    assert isinstance(found[1], Columns)
    schema = pa.schema([("room", pa.string()), ("celsius", pa.float64())])
    assert rows_of(JsonFormat(schema), [GOOD]) == ([{"room": "a", "celsius": 1.5}], [])
    assert rows_of(JsonFormat(), [b'{"any": [1, {"x": null}]}']) == ([{"any": [1, {"x": None}]}], [])


def test_strict_json() -> None:
    payloads = [GOOD, b'{"room": "a", "room": "b", "celsius": 1}', b'{"room": "a", "celsius": 1, "more": 1}']
    assert rows_of(JsonFormat(Reading), payloads)[1] == []
    assert rows_of(JsonFormat(Reading, strict=True), payloads)[1] == [1, 2]


def test_json_is_written() -> None:
    assert encoded(JsonFormat(), [{"a": 1}, Reading("x", 1.0), (1, "b")]) == [
        b'{"a":1}',
        b'{"room":"x","celsius":1.0,"note":null}',
        b'[1,"b"]',
    ]


def test_csv() -> None:
    format = CsvFormat(Reading)
    payloads = [b"a,1.5,", b'"b, c",2,"x ""y"""\n', b"d,warm,", b"e,1", b"", b"f,1,\ng,1,", b",3,z"]
    rows, bad = rows_of(format, payloads)
    assert rows == [Reading("a", 1.5), Reading("b, c", 2.0, 'x "y"'), Reading("", 3.0, "z")]
    assert bad == [2, 3, 4, 5]
    assert rows_of(format, encoded(format, rows)) == (rows, [])
    with pytest.raises(ConfigError, match="no names"):
        CsvFormat(None)


def test_text_and_bytes() -> None:
    assert rows_of(TextFormat(), [b"a", b"\xff", "ü".encode()]) == (["a", "ü"], [1])
    assert rows_of(RawFormat(), [b"a", b"\xff"]) == ([b"a", b"\xff"], [])
    assert encoded(TextFormat(), ["ü", 3]) == ["ü".encode(), b"3"]
    with pytest.raises(SinkError, match="not str"):
        encoded(RawFormat(), ["text"])


SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Reading",
        "fields": [{"name": "room", "type": "string"}, {"name": "celsius", "type": "double"}],
    }
)


def test_avro_with_a_schema_that_both_know() -> None:
    format = AvroFormat(SCHEMA)
    rows = [{"room": "a", "celsius": 1.5}, {"room": "b", "celsius": 2.0}]
    payloads = encoded(format, rows)
    assert rows_of(format, [payloads[0], b"\x02", payloads[1] + b"x", payloads[1]]) == (rows, [1, 2])
    assert rows_of(AvroFormat(SCHEMA, row_class=Reading), payloads)[0] == [Reading("a", 1.5), Reading("b", 2.0)]
    with pytest.raises(SinkError, match="does not fit"):
        encoded(format, [{"room": 1}])


def test_avro_with_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", "ann:secret")
    newer = json.loads(SCHEMA)
    newer["fields"].append({"name": "note", "type": "string", "default": "-"})
    with RegistryServer() as server:
        registry = SchemaRegistry(server.url, options={"basic.auth.user.info": "${env:LOGIN}"})
        payloads = encoded(AvroFormat(SCHEMA, registry=registry, subject="s"), [{"room": "a", "celsius": 1.5}])
        assert payloads[0][:5] == b"\x00\x00\x00\x00\x01"
        assert rows_of(AvroFormat(registry=registry), payloads * 3)[0] == [{"room": "a", "celsius": 1.5}] * 3
        assert server.asked == 2, "a schema is looked up once"
        assert server.authorization == "Basic YW5uOnNlY3JldA=="
        evolved = AvroFormat(json.dumps(newer), registry=registry)
        assert rows_of(evolved, payloads)[0] == [{"room": "a", "celsius": 1.5, "note": "-"}]
        server.down = True
        with pytest.raises(SourceError, match="refused") as error:
            rows_of(AvroFormat(registry=registry), [b"\x00\x00\x00\x00\x07x"])
        assert error.value.nature == "transient", "it is no fault of the message"
    with pytest.raises(SourceError, match="does not answer"):
        rows_of(AvroFormat(registry=registry), payloads)


def test_a_registry_has_no_password_in_its_url() -> None:
    with pytest.raises(ConfigError, match="password"):
        SchemaRegistry("http://ann:secret@host")
    with pytest.raises(ConfigError, match="is a secret"):
        SchemaRegistry("http://host", options={"bearer.token": "x"})


def test_protobuf() -> None:
    format = ProtobufFormat(MODULE)
    rows = [
        {
            "sensor": "a",
            "celsius": 1.5,
            "marks": [1, 2],
            "place": {"room": "x", "within": {"room": "y", "within": None}},
            "note": None,
        },
        {"sensor": "", "celsius": 0.0, "marks": [], "place": None, "note": "n"},
    ]
    payloads = encoded(format, [{name: value for name, value in row.items() if value is not None} for row in rows])
    assert rows_of(format, [payloads[0], b"\xff\xff", payloads[1]]) == (rows, [1])
    framed = [b"\x00\x00\x00\x00\x07\x00" + payload for payload in payloads]
    assert rows_of(ProtobufFormat(MODULE, framed=True), [*framed, payloads[0]]) == (rows, [2])
    assert format.known_columns() is not None
    with pytest.raises(ConfigError, match="cannot be imported"):
        ProtobufFormat("nowhere:Reading").decoder()


def test_debezium() -> None:
    event = {"op": "u", "before": {"id": 1}, "after": {"id": 1, "n": 2}, "source": {"table": "t"}, "ts_ms": 5}
    payloads = [json.dumps(event).encode(), json.dumps({"schema": {}, "payload": event}).encode(), b'{"op": "?"}', b"{}"]
    rows, bad = rows_of(DebeziumFormat(), payloads)
    assert bad == [2, 3]
    assert [(row.operation, row.before, row.after, row.timestamp_ms) for row in rows] == [
        ("update", {"id": 1}, {"id": 1, "n": 2}, 5)
    ] * 2
    assert rows_of(DebeziumFormat(), encoded(DebeziumFormat(), rows)) == (rows, [])

"""Formats as batches: of files (Parquet, CSV, JSON, lines of text), and of messages (`messages`), a payload for each record.

What programs use of them is named here.
"""

from penstock.connectors.formats.avro_messages import AvroFormat
from penstock.connectors.formats.csv_messages import CsvFormat
from penstock.connectors.formats.debezium_messages import DebeziumEvent, DebeziumFormat
from penstock.connectors.formats.json_messages import JsonFormat
from penstock.connectors.formats.protobuf_messages import ProtobufFormat
from penstock.connectors.formats.raw_messages import RawFormat, TextFormat
from penstock.connectors.formats.schema_registry import SchemaRegistry

__all__ = [
    "AvroFormat",
    "CsvFormat",
    "DebeziumEvent",
    "DebeziumFormat",
    "JsonFormat",
    "ProtobufFormat",
    "RawFormat",
    "SchemaRegistry",
    "TextFormat",
]

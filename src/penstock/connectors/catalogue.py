"""The connectors that come with Penstock, as `penstock connectors` lists them."""

from __future__ import annotations

from penstock.connectors.installed import Connector

_OURS = "penstock.connectors"

COLLECTION = Connector(
    "values of the program; output to the program or the screen",
    module=_OURS,
    sources=("CollectionSource",),
    sinks=("CollectSink", "PrintSink"),
)
APPEND_LOG = Connector("records that applications append, by HTTP or AppendLog", module=_OURS, sources=("AppendLogSource",))
GENERATOR = Connector("events by number, at a rate", module=_OURS, sources=("GeneratorSource",))
FILES = Connector(
    "JSON, CSV, Parquet and text, here or in an object store", module=_OURS, sources=("FileSource",), sinks=("FileSink",)
)
HYBRID = Connector("a bounded source, then another: history, then live", module=_OURS, sources=("HybridSource",))
KAFKA = Connector(
    "Kafka topics, exactly once by transactions",
    module="penstock.connectors.kafka",
    sources=("KafkaSource",),
    sinks=("KafkaSink",),
    needs=("confluent_kafka",),
    extra="penstock[kafka]",
)
POSTGRES = Connector(
    "tables of PostgreSQL, exactly once",
    module="penstock.connectors.postgres",
    sinks=("PostgresSink",),
    needs=("psycopg",),
    extra="penstock[postgres]",
)
SPARK = Connector(
    "anything that Spark can read, as DataFrame or stream",
    module="penstock.connectors.spark_feed.source",
    sources=("DataFrameSource", "SparkStreamSource"),
)
SQLITE = Connector("tables of SQLite, exactly once", module=_OURS, sinks=("SqliteSink",))

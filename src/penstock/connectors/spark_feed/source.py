"""Whatever Spark can read, as a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.connectors.protocol import SourceContext
from penstock.connectors.spark_feed import frames
from penstock.connectors.spark_feed.batches import FeedReader
from penstock.connectors.spark_feed.frame import FrameEnumerator
from penstock.connectors.spark_feed.stream import StreamEnumerator
from penstock.errors import ConfigError
from penstock.plan.schema import Schema
from penstock.records import RowType, field_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class SparkStreamSource:
    """A Structured Streaming source: `spark.readStream.format(format).options(**options).schema(schema).load()`.

    `SparkStreamSource.of(streaming_df)` takes a streaming DataFrame instead, with whatever was done to it. A micro-batch of
    Spark's becomes an epoch's input as a whole: limit it by Spark's own options (`maxFilesPerTrigger`, `maxOffsetsPerTrigger`).

    `schema` is Spark's (a DDL string or a StructType); `record` a class to make of each row, otherwise a row is a dict.
    `checkpoint` is where Spark keeps the query's progress: by default in the job's storage if that is a folder.
    """

    format: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    schema: Any = None
    _: KW_ONLY
    record: type | None = None
    checkpoint: str | None = None
    batch_size: int = 65536
    frame: str | None = None

    def __post_init__(self) -> None:
        if (self.format is None) == (self.frame is None):
            raise ConfigError(
                "a Spark feed needs a format or a streaming DataFrame",
                hint='SparkStreamSource(format="rate", options={…}), or SparkStreamSource.of(spark.readStream…load())',
            )
        object.__setattr__(self, "options", dict(self.options))
        _check(self.record, self.batch_size)

    @classmethod
    def of(cls, frame: DataFrame, *, record: type | None = None, checkpoint: str | None = None) -> SparkStreamSource:
        """The rows of a streaming DataFrame."""
        if not getattr(frame, "isStreaming", False):
            raise ConfigError("expected a streaming DataFrame", hint="use DataFrameSource(df) for a batch DataFrame")
        return cls(frame=frames.remember(frame), record=record, checkpoint=checkpoint)

    @property
    def bounded(self) -> bool:
        return False

    @property
    def row(self) -> RowType:
        return RowType(self.record)

    def enumerator(self, context: SourceContext) -> StreamEnumerator:
        return StreamEnumerator(self, context)

    def reader(self) -> FeedReader:
        return FeedReader(self.record, self.batch_size)

    def known_columns(self) -> Schema | None:
        return None if self.frame is None else frames.columns_of(self.frame, self.record)

    def describe(self) -> str:
        return f"Spark stream {self.format or self.frame}"


@dataclass(frozen=True, slots=True)
class DataFrameSource:
    """The rows of a batch DataFrame: computed once, when the job first starts, and kept with the job.

    `record` is a class to make of each row, otherwise a row is a dict.
    """

    frame: Any
    _: KW_ONLY
    record: type | None = None
    batch_size: int = 65536
    columns: tuple[str, ...] | None = field(init=False, repr=False, default=None)
    """The only columns that are read, chosen by the plan."""

    def __post_init__(self) -> None:
        if not isinstance(self.frame, str):
            if getattr(self.frame, "isStreaming", None) is not False:
                raise ConfigError(
                    f"{type(self.frame).__name__} is not a batch DataFrame",
                    hint="use SparkStreamSource.of(df) for a streaming one",
                )
            object.__setattr__(self, "frame", frames.remember(self.frame))
        _check(self.record, self.batch_size)

    @property
    def bounded(self) -> bool:
        return True

    @property
    def row(self) -> RowType:
        return RowType(self.record)

    def enumerator(self, context: SourceContext) -> FrameEnumerator:
        return FrameEnumerator(self, context)

    def reader(self) -> FeedReader:
        return FeedReader(self.record, self.batch_size, self.columns)

    def known_columns(self) -> Schema | None:
        return frames.columns_of(self.frame, self.record)

    def with_columns(self, columns: Sequence[str], *, strict: bool) -> DataFrameSource | None:
        """The source reading only these columns of what was written."""
        if self.columns is not None or self.record is not None or not columns:
            return None
        pruned = replace(self)
        object.__setattr__(pruned, "columns", tuple(columns))
        return pruned

    def describe(self) -> str:
        return f"Spark DataFrame {self.frame}"


def _check(record: type | None, batch_size: int) -> None:
    if record is not None:
        field_names(record)
    if batch_size < 1:
        raise ConfigError(f"batch_size={batch_size!r} is not valid", hint="give a whole number, 1 or more")

"""Penstock: stateful stream processing in Python, on Spark.

Event streams, keyed state, event time and exactly-once results. Spark moves and schedules, Arrow computes, Python decides.
"""

from penstock.api.environment import StreamEnvironment
from penstock.api.keyed import KeyedStream
from penstock.api.stream import DataStream, SplitStream
from penstock.config import JobConfig, RestartPolicy
from penstock.connectors.collecting.sink import CollectSink
from penstock.connectors.collection.source import CollectionSource
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.connectors.generator.source import GeneratorSource
from penstock.connectors.printing.sink import PrintSink
from penstock.connectors.twophase import SqliteSink, TransactionalSink, WriteAheadSink
from penstock.contexts import KeyedContext, OnTimerContext, ProcessContext, RuntimeContext
from penstock.epochs.history import EpochRecord, JobResult
from penstock.errors import PenstockError
from penstock.functions import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
)
from penstock.runtime.operators.operator import DeadLetter
from penstock.state.descriptors import AggregatingState, ListState, MapState, ReducingState, Ttl, ValueState
from penstock.timing.watermarks import WatermarkGenerator, Watermarks

__version__ = "0.1.0"

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "CollectSink",
    "CollectionSource",
    "DataStream",
    "DeadLetter",
    "EpochRecord",
    "FileSink",
    "FileSource",
    "FilterFunction",
    "FlatMapFunction",
    "GeneratorSource",
    "JobConfig",
    "JobResult",
    "KeyedContext",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListState",
    "MapFunction",
    "MapState",
    "OnTimerContext",
    "OutputTag",
    "PenstockError",
    "PrintSink",
    "ProcessContext",
    "ProcessFunction",
    "ReduceFunction",
    "ReducingState",
    "RestartPolicy",
    "RuntimeContext",
    "SplitStream",
    "SqliteSink",
    "StreamEnvironment",
    "TransactionalSink",
    "Ttl",
    "ValueState",
    "WatermarkGenerator",
    "Watermarks",
    "WriteAheadSink",
    "__version__",
]

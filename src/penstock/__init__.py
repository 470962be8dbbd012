"""Penstock: stateful stream processing in Python, on Spark.

Event streams, keyed state, event time and exactly-once results. Spark moves and schedules, Arrow computes, Python decides.
"""

from penstock.aggregates import approx_distinct, avg, collect, count, first, last, stddev, top_n
from penstock.api.environment import StreamEnvironment
from penstock.api.job import Job
from penstock.api.keyed import KeyedStream
from penstock.api.stream import DataStream, SplitStream
from penstock.api.windowed import WindowedStream
from penstock.config import JobConfig, RestartPolicy
from penstock.connectors.collecting.sink import CollectSink
from penstock.connectors.collection.source import CollectionSource
from penstock.connectors.files.reading.read_output import Output, read_output
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
from penstock.plan.expressions.expression import Expression, coalesce, col, concat, lit, when
from penstock.runtime.operators.operator import DeadLetter
from penstock.state.descriptors import AggregatingState, ListState, MapState, ReducingState, Ttl, ValueState
from penstock.timing.watermarks import WatermarkGenerator, Watermarks
from penstock.windows.aggregates import Aggregate
from penstock.windows.assigners import GlobalWindows, SessionWindows, SlidingWindows, TumblingWindows, WindowAssigner
from penstock.windows.evictors import CountEvictor, DeltaEvictor, Element, Evictor, TimeEvictor
from penstock.windows.functions import WindowContext, WindowFunction, per_window
from penstock.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from penstock.windows.window import TimeWindow

__version__ = "0.1.0"

__all__ = [
    "Aggregate",
    "AggregateFunction",
    "AggregatingState",
    "CollectSink",
    "CollectionSource",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "DataStream",
    "DeadLetter",
    "DeltaEvictor",
    "DeltaTrigger",
    "Element",
    "EndOfStreamTrigger",
    "EpochRecord",
    "EventTimeTrigger",
    "Evictor",
    "Expression",
    "FileSink",
    "FileSource",
    "FilterFunction",
    "FlatMapFunction",
    "GeneratorSource",
    "GlobalWindows",
    "Job",
    "JobConfig",
    "JobResult",
    "KeyedContext",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListState",
    "MapFunction",
    "MapState",
    "NeverTrigger",
    "OnTimerContext",
    "Output",
    "OutputTag",
    "PenstockError",
    "PrintSink",
    "ProcessContext",
    "ProcessFunction",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "ReduceFunction",
    "ReducingState",
    "RestartPolicy",
    "RuntimeContext",
    "SessionWindows",
    "SlidingWindows",
    "SplitStream",
    "SqliteSink",
    "StreamEnvironment",
    "TimeEvictor",
    "TimeWindow",
    "TransactionalSink",
    "Trigger",
    "TriggerResult",
    "Ttl",
    "TumblingWindows",
    "ValueState",
    "WatermarkGenerator",
    "Watermarks",
    "WindowAssigner",
    "WindowContext",
    "WindowFunction",
    "WindowedStream",
    "WriteAheadSink",
    "__version__",
    "approx_distinct",
    "avg",
    "coalesce",
    "col",
    "collect",
    "concat",
    "count",
    "first",
    "last",
    "lit",
    "per_window",
    "read_output",
    "stddev",
    "top_n",
    "when",
]

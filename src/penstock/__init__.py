"""Penstock: stateful stream processing in Python, on Spark.

Event streams, keyed state, event time and exactly-once results. Spark moves and schedules, Arrow computes, Python decides.

What most programs use is named here; the rest, and these again, by what it is for: `penstock.api`, `functions`, `contexts`,
`state`, `windows`, `cep`, `aggregates`, `expressions`, `changes`, `timing`, `connectors`, `config`, `errors`,
`testing`, `snapshots`.
"""

from typing import TYPE_CHECKING

from penstock.aggregates import avg, count
from penstock.api import DataStream, EpochRecord, Job, JobResult, KeyedStream, StreamEnvironment, WindowedStream
from penstock.cep import Pattern, PatternFunction, SkipStrategy
from penstock.config import RestartPolicy
from penstock.connectors import CollectionSource, CollectSink, FileSink, FileSource, GeneratorSource, read_output
from penstock.contexts import KeyedContext, OnTimerContext
from penstock.errors import PenstockError
from penstock.expressions import col, lit, when
from penstock.functions import AggregateFunction, KeyedProcessFunction, OutputTag, ProcessFunction
from penstock.state import AggregatingState, ListState, MapState, ReducingState, Ttl, ValueState
from penstock.timing import Watermarks
from penstock.windows import (
    CountTrigger,
    EventTimeTrigger,
    GlobalWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    WindowFunction,
)

if not TYPE_CHECKING:  # a type checker takes a name for one that is there if this is
    from penstock.moved import left_the_top as __getattr__  # noqa: F401

__version__ = "0.1.0"

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "CollectSink",
    "CollectionSource",
    "CountTrigger",
    "DataStream",
    "EpochRecord",
    "EventTimeTrigger",
    "FileSink",
    "FileSource",
    "GeneratorSource",
    "GlobalWindows",
    "Job",
    "JobResult",
    "KeyedContext",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListState",
    "MapState",
    "OnTimerContext",
    "OutputTag",
    "Pattern",
    "PatternFunction",
    "PenstockError",
    "ProcessFunction",
    "ReducingState",
    "RestartPolicy",
    "SessionWindows",
    "SkipStrategy",
    "SlidingWindows",
    "StreamEnvironment",
    "Ttl",
    "TumblingWindows",
    "ValueState",
    "Watermarks",
    "WindowFunction",
    "WindowedStream",
    "__version__",
    "avg",
    "col",
    "count",
    "lit",
    "read_output",
    "when",
]

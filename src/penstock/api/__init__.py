"""What a person writes: the environment, streams, keyed and windowed streams, which build a plan; and a job from outside.

`stream`, `keyed` and `windowed` only make plan nodes from definitions: they know nothing of what runs them, which import-linter
checks. `environment` hands the plan to `running/`; `job` is for any process that looks at a job, or controls it.
"""

from penstock.api.connected import (
    BroadcastConnectedStreams,
    BroadcastStream,
    ConnectedStreams,
    KeyedBroadcastConnectedStreams,
    KeyedConnectedStreams,
)
from penstock.api.environment import StreamEnvironment
from penstock.api.job import Job
from penstock.api.joined import Join, TemporalJoin
from penstock.api.joining import IntervalJoin
from penstock.api.keyed import KeyedStream
from penstock.api.loop import Loop
from penstock.api.patterns import PatternStream, RuleStream
from penstock.api.stream import DataStream, SplitStream
from penstock.api.windowed import WindowedStream
from penstock.api.windowed_joins import CoGrouped, WindowedCoGroup, WindowJoin
from penstock.epochs.history import EpochRecord, JobResult
from penstock.runtime.operators.operator import DeadLetter

__all__ = [
    "BroadcastConnectedStreams",
    "BroadcastStream",
    "CoGrouped",
    "ConnectedStreams",
    "DataStream",
    "DeadLetter",
    "EpochRecord",
    "IntervalJoin",
    "Job",
    "JobResult",
    "Join",
    "KeyedBroadcastConnectedStreams",
    "KeyedConnectedStreams",
    "KeyedStream",
    "Loop",
    "PatternStream",
    "RuleStream",
    "SplitStream",
    "StreamEnvironment",
    "TemporalJoin",
    "WindowJoin",
    "WindowedCoGroup",
    "WindowedStream",
]

"""What a task is told, and what it tells: the epoch's order from the loop, and the task's report to it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock.errors import Nature
from penstock.ids import Epoch, Milliseconds, Term
from penstock.jobs.source_order import SourceOrder, TableVersion
from penstock.jobs.step_metrics import StepMetrics
from penstock.state.files.durable import FileRef


class PartitionState(msgspec.Struct, frozen=True):
    """Where the state of a stage partition is: the last few files of its committed chain, layers, and timers by state id.

    `whole`: `tail` is the whole chain; otherwise the rest is in the manifest of `EpochOrder.head`. `layers`: deltas of epochs
    that have run since and are not committed.
    """

    tail: list[FileRef] = []
    whole: bool = True
    layers: list[FileRef] = []
    next_due: dict[int, Milliseconds] = {}


DeltaPlace = Literal["written", "reported", "kept"]
"""What a task does with its delta: writes it to the job's storage; gives it to the driver in its report, if it is not too
large, and keeps a copy on its host; only keeps it on its host, until a later epoch flushes it."""


class EpochOrder(msgspec.Struct, frozen=True):
    """An epoch as it was decided: the same for every attempt of every task.

    `head` is the committed epoch it goes on from, with the layers of `states` on top. `flush`: deltas hold these layers too.
    """

    epoch: Epoch
    term: Term
    plan: int
    head: Epoch
    processing_time: Milliseconds
    sources: dict[str, SourceOrder] = {}
    watermarks: dict[str, Milliseconds] = {}
    states: list[list[PartitionState]] = []
    final: bool = False
    deltas: DeltaPlace = "written"
    flush: bool = False
    settled: int = 0
    """The plan number of `head`, if it is of this term: deltas of plans up to it are committed, or given up."""
    tables: dict[str, TableVersion] = {}
    """By step, the table that it looks up in."""
    laps: int = 1
    """How often the stages at the ends of loops are run: see `penstock.runtime.loops.laps`."""
    opens: bool = False
    """This is no epoch: tasks only open their state, and so read, and check, every file that their host has not applied yet."""


class Failure(msgspec.Struct, frozen=True):
    """An error, as it travels from a worker to the driver."""

    kind: str
    what: str
    detail: str
    hint: str
    trace: str
    frames: str = ""
    """The traceback without our own frames."""
    nature: Nature = "machine"


class Reached(msgspec.Struct, frozen=True):
    """How far a source partition was read: whole splits, and rows of the next one. `ended`: to its end."""

    splits: int
    rows: int
    records: int
    ended: bool = False


class LoopReport(msgspec.Struct, frozen=True):
    """What a task knows of a loop: how many records are in it after the epoch; `waits`: time has to wait for them.

    What the task at its beginning says and what the one at its end says are put together."""

    records: int = 0
    waits: bool = False

    def plus(self, other: LoopReport) -> LoopReport:
        return LoopReport(records=self.records + other.records, waits=self.waits or other.waits)


class TaskReport(msgspec.Struct):
    """What one attempt of one task did."""

    stage: int
    partition: int
    attempt: str
    lap: int = 0
    consumed: dict[int, str] = {}
    state: FileRef | None = None
    delta: bytes = b""
    """What is to be in the file `state`, if the task has not written it."""
    origin: str = "untouched"
    entries: int | None = None
    committables: dict[str, Any] = {}
    volatile: dict[str, bytes] = {}
    clocks: dict[str, dict[str, Any]] = {}
    reached: dict[str, dict[str, Reached]] = {}
    short: Milliseconds | None = None
    """The epoch's bound was not reached: this is where the least partition with more input is."""
    watermarks: dict[str, Milliseconds] = {}
    resting: dict[str, Milliseconds] = {}
    """The watermarks of steps that are idle."""
    next_due: dict[int, Milliseconds] = {}
    copies: dict[str, str] = {}
    """Of each step with broadcast state, what has changed in this copy of it, as a digest."""
    loops: dict[str, LoopReport] = {}
    metrics: dict[str, StepMetrics] = {}
    failure: Failure | None = None
    warnings: dict[str, str] = {}
    upstream: list[bytes] = []
    host: str = ""
    seconds: float = 0.0


_encoder = msgspec.msgpack.Encoder()
_orders = msgspec.msgpack.Decoder(EpochOrder)
_reports = msgspec.msgpack.Decoder(TaskReport)

encode_order = _encoder.encode
decode_order = _orders.decode
encode_report = _encoder.encode


def decode_reports(data: bytes) -> list[TaskReport]:
    """A report and the reports of earlier stages that it carries."""
    report = _reports.decode(data)
    found = [report]
    for earlier in report.upstream:
        found += decode_reports(earlier)
    report.upstream = []
    return found


def attempt_name(term: Term, plan: int, stage: int, partition: int, task_attempt: int) -> str:
    """The name of an attempt: unique in the life of a job, and in every file it writes."""
    return f"{term}-{plan}-{stage}-{partition}-{task_attempt}"


def merge_name(term: Term, number: int) -> str:
    """The name of a compaction's attempt."""
    return f"{term}-c{number}"


def plan_of_attempt(attempt: str) -> int | None:
    """The number of the plan that an attempt belongs to; None: it is a compaction's."""
    second = attempt.split("-", 2)[1] if "-" in attempt else ""
    return None if second.startswith("c") else int(second)


def term_of_attempt(attempt: str) -> Term:
    return Term(int(attempt.split("-", 1)[0]))

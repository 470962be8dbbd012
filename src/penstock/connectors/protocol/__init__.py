"""What a source and a sink are: the contract of every connector, and all of a connector that the engine knows.

- `source`: `Source`, its `Enumerator` (driver) and its `Reader` (worker).
- `sink`: `Sink`, its `SinkWriter` (worker) and its `Committer` (driver).
- `rejected`: what a source cannot read.
- `rewind`: what a committer may add to take part when a job goes back to an earlier epoch.

A definition (`Source`, `Sink`) is small, frozen and picklable. What a part *must* have is in its protocol; a method with a body
there does nothing, and a class that inherits from the protocol may leave it out. What a part *may* have is a protocol of its own
(`ReadsInOrder`, `Sweeps`, …), which the engine asks for by `isinstance`: no attribute that is not declared here means anything.
"""

from penstock.connectors.protocol.rejected import Rejected, RejectedRecord, RejectsRecords
from penstock.connectors.protocol.rewind import Fences, KnowsPlaces, OutputSince, Repairs, RollsBack, TellsPublished
from penstock.connectors.protocol.sink import (
    Committable,
    Committer,
    CommitterContext,
    Confirms,
    Sink,
    SinkWriter,
    Sweeps,
    TakesChanges,
    WriterContext,
)
from penstock.connectors.protocol.source import (
    ComparesPositions,
    CountsSkipped,
    Enumerator,
    KnowsColumns,
    KnowsIdle,
    Limits,
    Ordering,
    Planned,
    Position,
    PositionKind,
    PrunesColumns,
    Reader,
    ReadsInOrder,
    RemovesInput,
    Sheds,
    Source,
    SourceContext,
    Split,
)
from penstock.functions import Call, CallsFunctions, call_of

__all__ = [
    "Call",
    "CallsFunctions",
    "Committable",
    "Committer",
    "CommitterContext",
    "ComparesPositions",
    "Confirms",
    "CountsSkipped",
    "Enumerator",
    "Fences",
    "KnowsColumns",
    "KnowsIdle",
    "KnowsPlaces",
    "Limits",
    "Ordering",
    "OutputSince",
    "Planned",
    "Position",
    "PositionKind",
    "PrunesColumns",
    "Reader",
    "ReadsInOrder",
    "Rejected",
    "RejectedRecord",
    "RejectsRecords",
    "RemovesInput",
    "Repairs",
    "RollsBack",
    "Sheds",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceContext",
    "Split",
    "Sweeps",
    "TakesChanges",
    "TellsPublished",
    "WriterContext",
    "call_of",
]

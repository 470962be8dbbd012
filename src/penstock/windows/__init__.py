"""Windows: which records belong together, when a result is due, and how it is computed.

    assigner: windows of a record       trigger: when to emit       evictor: what to leave out       aggregates: what to emit

What a program uses of them is named here. `lower` makes the definition (`step`) of what `window(...)` was given; `operators/`
is the logic in a worker, `columnar/` the same over columns. Importing this package registers the kinds of state of windows over
columns. Imports `plan/`, `runtime/`, `state/` and `timing/`.
"""

from penstock.state.entries.kinds import register
from penstock.windows.assigners import GlobalWindows, SessionWindows, SlidingWindows, TumblingWindows, WindowAssigner
from penstock.windows.columnar.stored.kind import SESSION_RUNS, SLICES
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

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "DeltaEvictor",
    "DeltaTrigger",
    "Element",
    "EndOfStreamTrigger",
    "EventTimeTrigger",
    "Evictor",
    "GlobalWindows",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "SessionWindows",
    "SlidingWindows",
    "TimeEvictor",
    "TimeWindow",
    "Trigger",
    "TriggerResult",
    "TumblingWindows",
    "WindowAssigner",
    "WindowContext",
    "WindowFunction",
    "per_window",
]

register((SLICES, SESSION_RUNS))

"""Modules that pages and examples have shown and that have moved, and names that have left the top: the old paths work for one
release, with a warning.

At each old path of a module is one of two lines that forwards. These tables are all that they know.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

MOVED = {
    "penstock.cli.progress": "penstock.cli.screen.progress",
    "penstock.connectors.files.read_output": "penstock.connectors.files.reading.read_output",
    "penstock.epochs.control": "penstock.jobs.requests",
    "penstock.state.codecs": "penstock.state.encoding.codecs",
}

LEFT_THE_TOP = {
    "penstock.aggregates": "Aggregate approx_distinct collect first last stddev top_n",
    "penstock.api": "DeadLetter SplitStream",
    "penstock.config": "JobConfig",
    "penstock.connectors": "Output PrintSink SqliteSink TransactionalSink WriteAheadSink",
    "penstock.contexts": "ProcessContext RuntimeContext",
    "penstock.expressions": "Expression coalesce concat",
    "penstock.functions": "FilterFunction FlatMapFunction MapFunction ReduceFunction",
    "penstock.timing": "WatermarkGenerator",
    "penstock.windows": (
        "ContinuousEventTimeTrigger ContinuousProcessingTimeTrigger CountEvictor DeltaEvictor DeltaTrigger Element "
        "EndOfStreamTrigger Evictor NeverTrigger ProcessingTimeTrigger PurgingTrigger TimeEvictor TimeWindow Trigger "
        "TriggerResult WindowAssigner WindowContext per_window"
    ),
}
"""Names that `penstock` had, by where they are."""


def forward(old: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module that has moved."""
    new = MOVED[old]

    def forwarded(name: str) -> Any:
        if name.startswith("__"):  # asked for by the import system, which does not mean the module that is there now
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        value = getattr(import_module(new), name)
        warnings.warn(f"{old} has moved: import {name} from {new}", DeprecationWarning, stacklevel=2)
        return value

    return forwarded


def left_the_top(name: str) -> Any:
    """The `__getattr__` of `penstock`."""
    group = next((group for group, names in LEFT_THE_TOP.items() if name in names.split()), None)
    if group is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    warnings.warn(f"penstock.{name} has moved: import {name} from {group}", DeprecationWarning, stacklevel=2)
    return getattr(import_module(group), name)

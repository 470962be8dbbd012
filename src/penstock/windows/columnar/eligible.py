"""Whether a window step can be computed over columns, and if not, why not. For the plan, and for explain."""

from __future__ import annotations

from penstock.windows.aggregates import Count
from penstock.windows.assigners import AlignedWindows, SessionWindows
from penstock.windows.columnar.measuring import MEASURES
from penstock.windows.declared import Declared
from penstock.windows.step import WindowStep
from penstock.windows.triggers import EventTimeTrigger


def why_not_columnar(definition: WindowStep) -> str | None:
    """A reason, or None."""
    spec, declared = definition.spec, definition.body.incremental
    if not definition.columnar:
        return "columnar=False"
    if not isinstance(declared, Declared):
        return "only declared aggregates are"
    if definition.body.function is not None:
        return "the process= function sees each window"
    if not spec.assigner.event_time:
        return "only windows of event time are"
    if not isinstance(spec.assigner, AlignedWindows) and not (isinstance(spec.assigner, SessionWindows) and spec.assigner.gap_ms):
        return "only tumbling and sliding windows, and sessions with one gap, are"
    if isinstance(spec.assigner, AlignedWindows) and spec.assigner.size_ms < spec.assigner.slide_ms:
        return "windows with gaps between them are not: a record may be in none"
    if isinstance(spec.assigner, AlignedWindows) and spec.assigner.stagger != "aligned":
        return "staggered windows are not: each key has its own"
    if isinstance(spec.assigner, SessionWindows) and spec.allowed_lateness_ms:
        return "sessions that late records may bring back are not"
    if type(spec.trigger) is not EventTimeTrigger or spec.trigger != EventTimeTrigger():
        return "the trigger looks at single records"
    if spec.evictor is not None:
        return "the evictor looks at single records"
    if definition.errors != "fail":
        return "errors are set aside record by record"
    for one in declared.aggregates:
        if type(one) not in MEASURES:
            return f"{one.name}: {one.kind} is not computed over columns"
        if callable(one.field):
            return f"{one.name}: a function is called for each record; name a field instead"
        if one.field is None and not isinstance(one, Count):
            return f"{one.name}: whole records are not columns; name a field"
    return None

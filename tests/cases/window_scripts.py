"""Window scripts: the step that a script describes, built with the public API.

Scripts of the Beam dialect are run where Penstock has what they ask for. Beam's watermark w is one behind Flink's: a window is
over at w >= end there, at w >= end - 1 here; and Beam drops a record at w > end + lateness. So both are moved by one. Whether a
pane is the last of its window is not known here when it is emitted, and not compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import DataStream, KeyedStream, OutputTag
from penstock.testing import WindowHarness
from penstock.windows.triggers import EventTimeTrigger, PurgingTrigger, Trigger
from tests.cases.assigner_scripts import make_assigner, ms
from tests.cases.expectations import NotBuiltError
from tests.cases.window_functions import REDUCES, WINDOW_FUNCTIONS, Panes, make_evictor, make_trigger

Spec = dict[str, Any]
LATE: OutputTag[Any] = OutputTag("late")


def window_harness(operator: Spec) -> WindowHarness:
    beam = operator.get("dialect") == "beam"
    assigner = make_assigner(operator["window"])
    trigger = beam_trigger(operator) if beam else make_trigger(operator.get("trigger"))
    evictor = make_evictor(operator.get("evictor"))
    compute = computation(operator["aggregate"], panes=beam)
    late = LATE if operator.get("late_side_output") else None
    lateness = ms(operator.get("allowed_lateness_ms", 0) + beam)

    def windows(stream: KeyedStream[Any, Any]) -> DataStream[Any]:
        return compute(stream.window(assigner, trigger=trigger, evictor=evictor, allowed_lateness=lateness, late=late))

    return WindowHarness(windows, key=key_of(operator["key"]), parallelism=operator.get("parallelism", 1))


def key_of(key: Spec) -> Callable[[Any], Any]:
    if "field" in key:
        field = key["field"]
        return lambda value: value[field]
    if "constant" in key:
        constant = key["constant"]
        return lambda value: constant
    raise NotBuiltError(f"no key {key!r} in the runner")


def computation(aggregate: Spec, *, panes: bool) -> Callable[[Any], DataStream[Any]]:
    names = {"reduce", "window_function", "process"}
    if aggregate.keys() - names:
        raise NotBuiltError(f"no aggregate {sorted(aggregate)} in the runner")
    function = aggregate.get("process", aggregate.get("window_function"))
    if function is not None and function not in WINDOW_FUNCTIONS:
        raise NotBuiltError(f"no window function {function!r} in the runner")
    made = WINDOW_FUNCTIONS[function or "pass_through"]()
    made = Panes(made) if panes else made
    if "reduce" not in aggregate:
        return lambda windowed: windowed.process(made)
    if aggregate["reduce"] not in REDUCES:
        raise NotBuiltError(f"no reduce {aggregate['reduce']!r} in the runner")
    reduce = REDUCES[aggregate["reduce"]]
    return lambda windowed: windowed.reduce(reduce, process=made)


def beam_trigger(operator: Spec) -> Trigger:
    """The trigger that means the same here, if there is one."""
    combiner = operator.get("timestamp_combiner", "end_of_window")
    if combiner != "end_of_window":
        raise NotBuiltError(f"Beam: the timestamp combiner {combiner}; here results have the time of the window's end")
    if operator["window"]["type"] == "session":
        raise NotBuiltError("Beam: sessions that touch do not merge there, and do here")
    if operator["trigger"]["type"] != "default":
        raise NotBuiltError(f"Beam: the trigger {operator['trigger']['type']} finishes windows, or emits empty panes")
    trigger: Trigger = EventTimeTrigger()
    return PurgingTrigger(trigger) if operator.get("accumulation") == "discarding" else trigger

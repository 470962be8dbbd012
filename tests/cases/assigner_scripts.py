"""Assigner scripts, on the assigners and the merging of windows that the engine uses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from penstock.errors import PenstockError
from penstock.windows.assigners import GlobalWindows, SessionWindows, SlidingWindows, TumblingWindows, WindowAssigner
from penstock.windows.operators.merging import InFlight, merge_windows
from penstock.windows.triggers import (
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    Trigger,
)
from penstock.windows.window import GLOBAL, TimeWindow
from tests.cases.expectations import ExpectationError, NotBuiltError

TRIGGER_NAMES: dict[type[Trigger], str] = {
    EventTimeTrigger: "event_time",
    ProcessingTimeTrigger: "processing_time",
    NeverTrigger: "never",
    EndOfStreamTrigger: "end_of_stream",
}


def ms(value: float) -> timedelta:
    return timedelta(milliseconds=value)


def make_assigner(window: dict[str, Any]) -> WindowAssigner:
    """The assigner that a script describes."""
    kind, time = window["type"], window.get("time", "event")
    stagger: Any = str(window.get("stagger") or "aligned").lower()
    if kind == "tumbling":
        return TumblingWindows(ms(window["size_ms"]), offset=ms(window.get("offset_ms") or 0), time=time, stagger=stagger)
    if stagger != "aligned":
        raise NotBuiltError(f"{kind} windows that are staggered")
    if kind == "sliding":
        return SlidingWindows(ms(window["size_ms"]), ms(window["slide_ms"]), offset=ms(window.get("offset_ms") or 0), time=time)
    if kind == "session":
        if window.get("gap_ms") is None:
            default = window.get("dynamic_default_gap_ms", 1)
            return SessionWindows(lambda element: ms(gap_of(element, default)), time=time)
        return SessionWindows(ms(window["gap_ms"]), time=time)
    if kind == "global":
        return GlobalWindows()
    raise NotBuiltError(f"no windows of type {kind!r} in the runner")


def gap_of(element: Any, default: int) -> int:
    gap: int = element.get("gap_ms", default) if isinstance(element, dict) else default
    return gap


def spelled(window: TimeWindow) -> Any:
    return "global" if window == GLOBAL else list(window)


class AssignerRun:
    """One script."""

    restorable = False

    def __init__(self, operator: dict[str, Any]) -> None:
        self._window = operator["window"]
        self._now = 0
        self._in_flight = InFlight()
        self._stagger: int | None = None

    def step(self, step: dict[str, Any]) -> None:
        for name in ("processing_time", "assign", "construct", "expect_properties", "merge", "intersect", "add_window"):
            if name in step:
                getattr(self, f"_{name}")(step)
                return
        if "retire_window" in step:
            self._in_flight.retire(TimeWindow(*step["retire_window"]))
        elif "inspect" not in step:
            raise NotBuiltError(f"no step {sorted(step)} in the runner")

    def restore(self) -> None:
        """Nothing is kept in state."""

    def close(self) -> None:
        """Nothing is open."""

    def _processing_time(self, step: dict[str, Any]) -> None:
        self._now = step["processing_time"]

    def _assign(self, step: dict[str, Any]) -> None:
        element = step["assign"]
        given = {name: element[name] for name in ("size_ms", "slide_ms", "offset_ms") if name in element}
        assigner = make_assigner({**self._window, **given})
        try:
            windows = [spelled(window) for window in self._windows(assigner, element)]
        except PenstockError as error:
            if "raises" not in step:
                raise ExpectationError(f"raised {error}") from error
            return
        if "raises" in step:
            raise ExpectationError(f"should have raised: {step['raises']}")
        check(sorted(step["expect_windows"], key=str), sorted(windows, key=str))

    def _windows(self, assigner: WindowAssigner, element: dict[str, Any]) -> Iterable[TimeWindow]:
        if not isinstance(assigner, TumblingWindows) or assigner.stagger == "aligned":
            return assigner.assign(element, element["ts"], self._now)
        if self._stagger is None:
            self._stagger = assigner.staggered(b"key", self._now)
        return assigner.assign_staggered(element["ts"], self._now, self._stagger)

    def _construct(self, step: dict[str, Any]) -> None:
        try:
            make_assigner({**self._window, **step["construct"]})
        except PenstockError:
            return
        raise ExpectationError(f"should have raised: {step['raises']}")

    def _expect_properties(self, step: dict[str, Any]) -> None:
        assigner = make_assigner(self._window)
        trigger = assigner.default_trigger()
        found = {"event_time": assigner.event_time, "default_trigger": TRIGGER_NAMES.get(type(trigger), repr(trigger))}
        wanted = step["expect_properties"]
        check(wanted, {name: found[name] for name in wanted})

    def _merge(self, step: dict[str, Any]) -> None:
        merges = merge_windows([TimeWindow(*window) for window in step["merge"]])
        found = sorted((list(cover), sorted(map(list, parts))) for cover, parts in merges)
        check(sorted((wanted["result"], sorted(wanted["sources"])) for wanted in step["expect_merges"]), found)

    def _intersect(self, step: dict[str, Any]) -> None:
        left, right = (TimeWindow(*window) for window in step["intersect"])
        check([step["expect_bool"]] * 2, [left.touches(right), right.touches(left)])

    def _add_window(self, step: dict[str, Any]) -> None:
        merge = self._in_flight.add(TimeWindow(*step["add_window"]))
        check([step["expect_window"], step["merged"]], [list(merge.window), bool(merge.replaced)])
        if "merge_sources" in step:
            check(sorted(step["merge_sources"]), sorted(map(list, merge.replaced)))


def check(wanted: Any, found: Any) -> None:
    if wanted != found:
        raise ExpectationError(f"expected {wanted}, got {found}")

"""Interval join scripts: each is run record by record and over columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from penstock import KeyedStream, OutputTag, PenstockError
from penstock.joins import JoinContext, ProcessJoinFunction
from penstock.testing.join_harness import JoinHarness
from tests.cases.assigner_scripts import ms
from tests.cases.expectations import ExpectationError, NotBuiltError, compare, compare_number
from tests.cases.script_functions import KEYS

Spec = dict[str, Any]
LATE: tuple[OutputTag[Any], OutputTag[Any]] = (OutputTag("late-left"), OutputTag("late-right"))
SIDES = {"left": 0, "lhs": 0, 0: 0, "right": 1, "rhs": 1, 1: 1}
INVARIANTS = {
    "context_left_timestamp_equals_left_ts": lambda ctx, left, right: ctx[0] == left["ts"],
    "context_right_timestamp_equals_right_ts": lambda ctx, left, right: ctx[1] == right["ts"],
    "context_timestamp_equals_max_of_both_ts": lambda ctx, left, right: ctx[2] == max(left["ts"], right["ts"]),
}


class Recorder(ProcessJoinFunction[Any, Any, Any]):
    """`pair` and `check_context`; what it was called with is kept."""

    def __init__(self, emits: bool, calls: list[Any]) -> None:
        self.emits = emits
        self.calls = calls

    def process(self, left: Any, right: Any, ctx: JoinContext) -> Iterator[Any]:
        self.calls.append(((ctx.left_timestamp, ctx.right_timestamp, ctx.timestamp), left, right))
        if self.emits:
            yield [left, right]


class IntervalJoinRun:
    restorable = True

    def __init__(self, operator: Spec) -> None:
        function = operator["function"]
        if function not in ("pair", "check_context"):
            raise NotBuiltError(f"no function {function!r} in the runner")
        self._pairs = function == "pair"
        self._calls: list[Any] = []
        key, parallelism = _key_of(operator["key"]), operator.get("parallelism", 1)
        recorder = Recorder(self._pairs, self._calls)
        recorder.__reduce_ex__ = lambda _: (lambda: recorder, ())  # type: ignore[method-assign]
        self._harnesses = [
            JoinHarness(lambda a, b: _bounded(operator, a, b).process(recorder), key, parallelism=parallelism),
            JoinHarness(
                lambda a, b: _bounded(operator, a, b).select(left={"value": "left"}, right={"value": "right"}),
                lambda row: key(json.loads(row["value"])),
                parallelism=parallelism,
            ),
        ]
        self._seen: list[list[Any]] = [[], []]

    def close(self) -> None:
        for harness in self._harnesses:
            harness.close()

    def restore(self, parallelism: int | None = None) -> None:
        for harness in self._harnesses:
            harness.restore(harness.snapshot(), parallelism=parallelism)

    def step(self, step: Spec) -> None:
        if "element" in step:
            element = step["element"]
            if "subtask" in step or "raises_inside_function" in step:
                raise NotBuiltError("an interval join has no subtask of its own")
            for columnar, harness in enumerate(self._harnesses):
                value = {"value": json.dumps(element["value"])} if columnar else element["value"]
                _send(harness, value, element["ts"], element.get("input", 0), step.get("raises", element.get("raises")))
        elif "watermark" in step:
            for harness in self._harnesses:
                harness.watermark(step["watermark"], port=step.get("input"))
        elif "processing_time" in step:
            for harness in self._harnesses:
                harness.processing_time(step["processing_time"])
        elif "snapshot_restore" in step:
            options = step["snapshot_restore"]
            self.restore(options.get("parallelism") if isinstance(options, dict) else None)
        elif "end_of_input" in step:
            for harness in self._harnesses:
                harness.end()
        elif "expect" in step:
            self._expect(step)
        elif "expect_late" in step:
            wanted = [side for name, side in SIDES.items() if name == step["side"]] if "side" in step else [0, 1]
            for columnar, harness in enumerate(self._harnesses):
                late = [pair for side in sorted(set(wanted)) for pair in harness.side(LATE[side])]
                found = [(json.loads(v["value"]) if columnar else v, time) for v, time in late]
                compare(step["expect_late"], found, step.get("order", "any"))
        elif "expect_side" in step:
            for harness in self._harnesses:
                compare(step["expect_side"], list(harness.side(step["tag"])), step.get("order", "exact"))
        elif "expect_state_entries" in step:
            compare_number(step["expect_state_entries"], self._harnesses[0].state_entries(), "state entries")
        elif "expect_event_timers" in step:
            compare_number(step["expect_event_timers"], self._harnesses[0].event_timers(), "event-time timers")
        elif "expect_invariant" in step:
            self._invariant(step["expect_invariant"])
        elif not {"end_of_bundle", "inspect"} & step.keys():
            raise NotBuiltError(f"no step {sorted(step)} in the runner")

    def _take(self) -> list[list[Any]]:
        taken = []
        for columnar, harness in enumerate(self._harnesses):
            events: list[Any] = list(harness.take_events())
            if columnar:
                events = [(_pair(e[0]), e[1]) if isinstance(e, tuple) else e for e in events]
                events = [e for e in events if self._pairs or not isinstance(e, tuple)]
            self._seen[columnar] += events
            taken.append(events)
        return taken

    def _expect(self, step: Spec) -> None:
        ignore = step.get("watermarks") == "ignore"
        for events in self._take():
            shown = [event for event in events if isinstance(event, tuple)] if ignore else events
            compare(step["expect"], shown, step.get("order", "exact"), ignore_watermarks=ignore)

    def _invariant(self, name: str) -> None:
        self._take()
        if name == "no_record_at_or_before_an_emitted_watermark":
            for events in self._seen:
                emitted = -(2**63)
                for event in events:
                    if not isinstance(event, tuple):
                        emitted = event
                    elif event[1] <= emitted:
                        raise ExpectationError(f"{event} after the watermark {emitted}")
        elif name in INVARIANTS:
            if not self._calls or not all(INVARIANTS[name](*call) for call in self._calls):
                raise ExpectationError(f"{name}: {self._calls}")
        else:
            raise NotBuiltError(f"no invariant {name!r} in the runner")


def _bounded(operator: Spec, left: KeyedStream[Any, Any], right: KeyedStream[Any, Any]) -> Any:
    joined = left.interval_join(right).between(
        ms(operator["lower_bound_ms"]),
        ms(operator["upper_bound_ms"]),
        lower_exclusive=not operator.get("lower_inclusive", True),
        upper_exclusive=not operator.get("upper_inclusive", True),
    )
    return joined.late(left=LATE[0], right=LATE[1]) if operator.get("late_side_output") else joined


def _key_of(key: Any) -> Callable[[Any], Any]:
    if isinstance(key, str) and key in KEYS:
        return KEYS[key]
    if not isinstance(key, dict):
        raise NotBuiltError(f"no key {key!r} in the runner")
    if "constant" in key:
        return lambda value: key["constant"]
    if "field" in key:
        return lambda value: value[key["field"]]
    raise NotBuiltError(f"no key {key!r} in the runner")


def _pair(row: dict[str, Any]) -> list[Any]:
    return [json.loads(row["left"]), json.loads(row["right"])]


def _send(harness: JoinHarness, value: Any, ts: int | None, input: int, raises: str | None) -> None:
    try:
        harness.send(value, ts, port=input)
    except PenstockError as error:
        if raises is None:
            raise ExpectationError(f"raised {error}") from error
    else:
        if raises is not None:
            raise ExpectationError(f"should have raised: {raises}")

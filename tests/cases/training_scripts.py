"""Training scripts: the example programs, run as jobs.

Each step of a script is a run of the job, which goes on from where it was: what has come out since is what the step gave. So
state is restored between any two steps.
"""

from __future__ import annotations

import re
import runpy
import sys
import tempfile
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from penstock import CollectSink, DataStream, StreamEnvironment, snapshots
from penstock.contexts import ProcessContext
from penstock.functions import ProcessFunction
from penstock.ids import MIN_WATERMARK
from penstock.state.entries.kinds import is_internal
from penstock.testing import (
    End,
    ProcessingTime,
    Record,
    ScriptedSource,
    VirtualClock,
    Watermark,
    execute_inline,
    scripted_watermarks,
)
from tests.cases.expectations import NotBuiltError, compare, compare_number

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True)
class Exercise:
    """An example program. `inputs`: what comes in at each input; `rows`: its results are rows of their fields."""

    program: str
    inputs: tuple[str, ...]
    rows: bool = False


EXERCISES = {
    "ride_cleansing": Exercise("ride_cleansing", ("ride",)),
    "rides_and_fares": Exercise("rides_and_fares", ("ride", "fare")),
    "hourly_tips": Exercise("hourly_tips", ("fare",), rows=True),
    "long_ride_alerts": Exercise("long_ride_alerts", ("ride",)),
}
TYPES = {"ride": "TaxiRide", "fare": "TaxiFare"}


class WithTime(ProcessFunction[Any, Any]):
    """Each result with its timestamp."""

    def process(self, value: Any, ctx: ProcessContext) -> list[Any]:
        return [(value, ctx.timestamp)]


class TrainingRun:
    """One script."""

    restorable = True

    def __init__(self, operator: dict[str, Any]) -> None:
        name = operator["exercise"]
        if name not in EXERCISES:
            raise NotBuiltError(f"no example program for {name!r}")
        self._exercise = EXERCISES[name]
        self._program = runpy.run_path(str(EXAMPLES / f"{self._exercise.program}.py"), run_name=f"training_{name}")
        module = type(sys)(f"training_{name}")
        module.__dict__.update(self._program)
        sys.modules[module.__name__] = module  # where the types of its state are looked for by name
        self._parallelism = operator.get("parallelism", 1)
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-training-")
        self._storage = f"{self._folder.name}/job"
        self._scripts: list[list[Any]] = [[] for _ in self._exercise.inputs]
        self._clock = VirtualClock()
        self._events: list[Any] = []
        self._watermark = MIN_WATERMARK

    def close(self) -> None:
        self._folder.cleanup()

    def restore(self) -> None:
        """Each step is a run of its own."""

    def step(self, step: dict[str, Any]) -> None:
        if "element" in step:
            element = step["element"]
            self._script(element).append(Record(self._made(element["value"]), element["ts"]))
            self._run()
        elif "watermark" in step:
            for number, script in enumerate(self._scripts):
                if step.get("input", number) == number:
                    script.append(Watermark(step["watermark"]))
            self._run()
        elif "processing_time" in step:
            for script in self._scripts:
                script.append(ProcessingTime(step["processing_time"]))
            self._clock.now = step["processing_time"]
            self._run()
        elif "snapshot_restore" in step:
            said = step["snapshot_restore"]
            self._parallelism = (said if isinstance(said, dict) else step).get("parallelism", self._parallelism)
            self._run()
        elif "end_of_input" in step:
            for script in self._scripts:
                script.append(End())
            self._run()
        elif "expect" in step:
            events, self._events = self._events, []
            ignore = step.get("watermarks") == "ignore"
            given = [event for event in events if isinstance(event, tuple)] if ignore else events
            compare(step["expect"], given, step.get("order", "exact"), ignore_watermarks=ignore)
        elif "expect_state_entries" in step:
            compare_number(step["expect_state_entries"], self._entries(timers=False), "state entries")
        elif "expect_event_timers" in step:
            compare_number(step["expect_event_timers"], self._entries(timers=True), "event-time timers")
        elif "end_of_bundle" not in step and "inspect" not in step:
            raise NotBuiltError(f"no step {sorted(step)} in the runner")

    def _script(self, element: dict[str, Any]) -> list[Any]:
        kind = element["value"].get("type")
        return self._scripts[self._exercise.inputs.index(kind) if kind in self._exercise.inputs else element.get("input", 0)]

    def _made(self, value: dict[str, Any]) -> Any:
        made = self._program[TYPES[value["type"]]]
        return made(**{snake(name): said for name, said in value.items() if name != "type"})

    def _run(self) -> None:
        """The job goes on with what has been added to the scripts."""
        env = StreamEnvironment("training", executor="inline", parallelism=self._parallelism, storage=self._storage)
        inputs = [
            env.from_source(ScriptedSource(script), watermarks=scripted_watermarks(), name=f"{name}s")
            for name, script in zip(self._exercise.inputs, self._scripts, strict=True)
        ]
        results: DataStream[Any] = self._program["build"](*inputs)
        sink = CollectSink()
        results.process(WithTime(), name="with-time").sink_to(sink, name="results")
        execute_inline(env, clock=self._clock)
        self._events += [(self._plain(value), time) for value, time in sink.results()]
        with snapshots.read(f"{self._storage}@latest") as latest:
            reached = latest.watermarks.get("with-time", MIN_WATERMARK)
        if reached > self._watermark:
            self._watermark = reached
            self._events.append(reached)

    def _plain(self, value: Any) -> Any:
        """As the script has it."""
        if not is_dataclass(value):
            return value
        named = {camel(field.name): self._plain(getattr(value, field.name)) for field in fields(value)}
        if self._exercise.rows:
            return list(named.values())
        kinds = {name: kind for kind, name in TYPES.items()}
        kind = kinds.get(type(value).__name__)
        return named if kind is None else {"type": kind, **named}

    def _entries(self, *, timers: bool) -> int:
        with snapshots.read(f"{self._storage}@latest") as latest:
            states = [state for state in latest.states() if is_internal(state.kind) == timers]
            return sum(state.entries for state in states if not timers or state.name == "timers:event")


def snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda letter: letter[1].upper(), name)

"""The window step: a frozen definition that the plan can inspect, and makes the operator."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.contexts import RuntimeContext
from penstock.errors import PlanError
from penstock.functions import Call, Function, call_of, life_cycle, method_call
from penstock.ids import StepId
from penstock.plan.definition import Definition, KeyFields, StateDeclaration, Takes
from penstock.plan.schema import Schema
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import TIMER_STATES, Services, TimerStates
from penstock.state.descriptors import Evolving, ListState, State, ValueState, declared_states, state_calls, value_state
from penstock.state.entries.kinds import TIMERS
from penstock.state.overlay.handles import check_defaults
from penstock.windows.arrow_function import ArrowFunction
from penstock.windows.assigners import AlignedWindows
from penstock.windows.declared import Declared
from penstock.windows.incremental import Incremental
from penstock.windows.spec import WindowSpec
from penstock.windows.spec_calls import spec_calls
from penstock.windows.triggers import Trigger
from penstock.windows.window import WINDOW_SIZE

KEY_TIMERS: TimerStates = ("timers:key-event", "timers:key-processing", "timers:key-ttl-event", "timers:key-ttl-processing")
"""The timer queues of state that outlives windows."""

CONTENTS, SESSIONS, STAGGER = "contents", "sessions", "stagger"
"""The states of window steps: what is in a window; which merging windows there are of a key; how its windows are staggered."""


class WindowBody(Function):
    """What is computed: an incremental aggregation, a function of the window as a whole, or one after the other."""

    def __init__(self, *, incremental: Incremental | None = None, function: Any = None, state_type: Any = None) -> None:
        self.incremental = incremental
        self.function = function
        self.state_type = state_type
        if getattr(state_type, "ttl", None) is not None:
            raise PlanError("the contents of windows have no ttl", hint="a window is dropped when it is over")

    def calls(self) -> tuple[Call, ...]:
        """How the user's functions will be called."""
        found = () if self.incremental is None else self.incremental.calls()
        if isinstance(self.function, ArrowFunction):
            return *found, call_of(self.function.function, "apply", "key", "window", "batch", several=True)
        if self.function is None:
            return found
        clear = method_call(self.function, "clear", "ctx", optional=True)
        process = call_of(self.function, "process", "values", "ctx", several=True)
        return *found, process, clear, *life_cycle(self.function), *state_calls(self.function)

    def open(self, context: RuntimeContext) -> None:
        self.function = copy.copy(self.function) if isinstance(self.function, Function) else self.function
        for part in self._parts():
            part.open(context)

    def close(self) -> None:
        for part in self._parts():
            part.close()

    def _parts(self) -> Iterator[Function]:
        """The user's functions that have a life cycle."""
        given = None if self.incremental is None else self.incremental.function
        for part in (given, getattr(given, "__self__", None), self.function):
            if isinstance(part, Function):
                yield part


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStep(Definition):
    """Windows on a keyed stream. `key_names`: what the key's parts are called in results of declared aggregates."""

    spec: WindowSpec
    body: WindowBody
    key_type: Any = None
    key_fields: KeyFields | None = None
    key_names: tuple[str, ...] = ()
    label: str = "process"
    columnar: bool = True

    def __post_init__(self) -> None:
        states = declared_states(self.body.function)
        check_defaults(states)
        taken = {"process", "clear", "open", "close", CONTENTS, SESSIONS, STAGGER} & states.keys()
        if taken:
            raise PlanError(f"a state may not be called {min(taken)!r}", hint="choose another name for the state")
        if self.spec.assigner.merging and any(state.per_window for state in states.values()):
            raise PlanError(
                f"{type(self.body.function).__name__} has state per window, and its windows merge",
                hint="keep it per key, or compute it from the window's records",
            )

    @property
    def kind(self) -> str:
        return f"window {self.label}"

    def takes(self, given: int) -> tuple[Takes, ...]:
        return (Takes(keyed=True, key_type=self.key_type),)

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        declared = self.body.incremental
        return declared.output(inputs[0]) if isinstance(declared, Declared) and self.label == "aggregate" else None

    @property
    def incremental(self) -> bool:
        """Do windows hold an accumulator (or else their records)?"""
        kept = self.body.incremental
        return kept is not None and self.spec.evictor is None and (kept.merges or not self.spec.assigner.merging)

    def function(self) -> Any:
        return self.body.function if self.body.incremental is None else self.body.incremental.function

    def calls(self) -> tuple[Call, ...]:
        return *self.body.calls(), *spec_calls(self.spec)

    def function_states(self) -> tuple[str, ...]:
        """The names of the states that the window function declares."""
        return tuple(declared_states(self.body.function))

    def window_states(self) -> dict[str, State]:
        """State per (key, window), by name."""
        found: dict[str, State] = {CONTENTS: self._contents()}
        found.update(trigger_states(self.spec.trigger))
        found.update({name: state for name, state in declared_states(self.body.function).items() if state.per_window})
        return found

    def key_states(self) -> dict[str, State]:
        """State per key, by name."""
        found: dict[str, State] = {SESSIONS: ValueState(list[tuple[int, int, int, int]])} if self.spec.assigner.merging else {}
        if isinstance(self.spec.assigner, AlignedWindows) and self.spec.assigner.stagger != "aligned":
            found[STAGGER] = ValueState(int)
        found.update({name: state for name, state in declared_states(self.body.function).items() if not state.per_window})
        return found

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        keyed = self.key_states()
        named = {**self.window_states(), **keyed}
        timers = TIMER_STATES + (KEY_TIMERS if keyed else ())
        of_keys = {*keyed, *KEY_TIMERS}
        return tuple(
            StateDeclaration(
                step=step,
                name=name,
                state=state,
                kind=state.kind,
                key_type=self.key_type,
                key_fields=self.key_fields,
                what=self.kept() if name == CONTENTS else "",
                namespace=0 if name in of_keys else WINDOW_SIZE,
            )
            for name, state in named.items()
        ) + tuple(
            StateDeclaration(
                step=step,
                name=name,
                state=None,
                kind=TIMERS.name,
                key_type=self.key_type,
                key_fields=self.key_fields,
                namespace=0 if name in of_keys else WINDOW_SIZE,
            )
            for name in timers
        )

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        from penstock.windows.operators.operator import window_operator

        return window_operator(step, services, self)

    def describe(self) -> dict[str, str]:
        """For explain."""
        shown = self.spec.describe()
        if isinstance(self.body.incremental, Declared):
            shown["aggregates"] = self.body.incremental.describe()
        shown["contents"] = (
            "incremental: an accumulator for each window"
            if self.incremental
            else f"buffered: all records of a window, until it is over ({self._why_buffered()})"
        )
        return shown

    def kept(self) -> str:
        """Of what windows, keys and aggregates the contents are: with another text they would be misread."""
        declared = self.body.incremental
        if not isinstance(declared, Declared):
            return self.spec.assigner.describe()
        kept = [f"{one.kind}({_shown(one.field)})" for one in declared.aggregates]
        return "; ".join((self.spec.assigner.describe(), f"key {', '.join(declared.key_names)}", *kept))

    def _why_buffered(self) -> str:
        if self.body.incremental is None:
            return "the function sees them together"
        return "the evictor needs them" if self.spec.evictor is not None else "the function cannot merge two windows"

    def _contents(self) -> State:
        kept = value_state(self.body.state_type)
        if self.incremental:
            return kept
        if kept.value_type is None or self.body.incremental is not None:
            return ListState()
        evolving: Evolving = {"aliases": kept.aliases.given, "previous_names": kept.previous_names}
        if kept.migrate is not None:
            evolving["migrate"] = WithTime(kept.migrate)
        record: Any = kept.value_type
        return ListState(tuple[record, int | None], **evolving)


@dataclass(frozen=True, slots=True)
class WithTime:
    """Migrates records that are kept with their timestamps."""

    migrate: Callable[[Any], Any]

    def __call__(self, element: Sequence[Any]) -> tuple[Any, Any]:
        record, time = element
        return self.migrate(record), time


def _shown(field: Any) -> str:
    return "" if field is None else "a function" if callable(field) else repr(field)


def no_timestamp(step: str, record: Any) -> PlanError:
    """The error for a record that no event-time window can take."""
    return PlanError(
        f"step {step!r}: a record without a timestamp came to event-time windows",
        detail=f"record: {record!r:.300}",
        hint='give the source watermarks=Watermarks.bounded(seconds=5, timestamp=...), or the windows time="processing"',
    )


def trigger_states(trigger: Trigger, path: str = "trigger") -> dict[str, State]:
    """The states of a trigger and of the triggers in it, by name."""
    found: dict[str, State] = {f"{path}.{name}": state for name, state in declared_states(trigger).items()}
    for name, part in sorted(vars(trigger).items()):
        if isinstance(part, Trigger):
            found.update(trigger_states(part, f"{path}.{name}"))
    return found

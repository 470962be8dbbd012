"""Steps of joins that are keyed functions: results have a time and a kind of their own, and records may be changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

from penstock.changes import APPENDS, Changes
from penstock.functions import Call
from penstock.ids import StepId
from penstock.joins.results import ResultOutputs
from penstock.joins.spec import LEFT, RIGHT, Side
from penstock.plan.definition import StateDeclaration
from penstock.plan.schema import Schema
from penstock.records import Records, carried
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.co_process import KeyedCoProcess
from penstock.runtime.operators.keyed import KeyedProcess, KeyedProcessOperator
from penstock.runtime.operators.operator import Operator, Ports
from penstock.runtime.services import Services
from penstock.state.descriptors import state_calls


class Changed(NamedTuple):
    """A record as the functions of these steps see it, with the code of its kind."""

    value: Any
    kind: int


class Body(Protocol):
    """A function of such a step."""

    def function_calls(self) -> tuple[Call, ...]: ...

    def emits(self, inputs: tuple[Changes, ...]) -> Changes: ...

    def describe(self) -> dict[str, str]: ...

    def of_what(self) -> dict[str, str]:
        """By state, of what it is, where that may not change."""
        ...


class JoiningBody(Body, Protocol):
    """A function of two streams."""

    def accepts(self, side: Side) -> Changes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinProcess(KeyedCoProcess):
    """A join of two streams by a keyed function, a `JoiningBody`."""

    is_join: ClassVar[bool] = True
    schema_of: Callable[[tuple[Schema | None, ...]], Schema | None] | None = None
    why: str = "a function sees the records"

    @property
    def kind(self) -> str:
        return self.label

    def accepts_from(self, port: int) -> Changes:
        changes: Changes = self.body.accepts(LEFT if port == 0 else RIGHT)
        return changes

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        changes: Changes = self.body.emits(inputs)
        return changes

    def calls(self) -> tuple[Call, ...]:
        return *self.body.function_calls(), *state_calls(self.body)

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return _of(self.body, KeyedCoProcess.states(self, step))

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return None if self.schema_of is None else self.schema_of(inputs)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return JoinProcessOperator(step, services, inputs, self)

    def describe(self) -> dict[str, str]:
        """For explain."""
        return {**self.body.describe(), "path": f"record by record, not over columns: {self.why}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatingProcess(KeyedProcess):
    """A keyed function of one stream, a `Body`, whose results have kinds."""

    is_join: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return self.label

    @property
    def accepts(self) -> Changes:
        return APPENDS

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        changes: Changes = self.body.emits(inputs)
        return changes

    def calls(self) -> tuple[Call, ...]:
        return *self.body.function_calls(), *state_calls(self.body)

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return _of(self.body, KeyedProcess.states(self, step))

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return JoinProcessOperator(step, services, inputs, self)

    def describe(self) -> dict[str, str]:
        """For explain."""
        found: dict[str, str] = self.body.describe()
        return found


def _of(body: Body, states: tuple[StateDeclaration, ...]) -> tuple[StateDeclaration, ...]:
    """States that say of what they are."""
    kept = body.of_what()
    return tuple(replace(state, what=kept.get(state.name, "")) for state in states)


class JoinProcessOperator(KeyedProcessOperator):
    """Hands its function records with their kinds, and takes `Result`s."""

    _with_kinds: bool | None = None

    def on_input(self, port: int, batch: Keyed) -> None:
        super().on_input(port, _changed(batch))

    def on_merged(self, batches: dict[int, Keyed], ports: Ports) -> None:
        super().on_merged({port: _changed(batch) for port, batch in batches.items()}, ports)

    def _run(self, *arguments: Any) -> None:
        if self._with_kinds is None:  # what follows is known from the first record on
            self._with_kinds = self.updates
            self.outputs = ResultOutputs(self.outputs, updates=self.updates)
        super()._run(*arguments)

    def _emit_fired(self, *arguments: Any) -> None:
        if self._with_kinds is None:
            self._with_kinds = self.updates
            self.outputs = ResultOutputs(self.outputs, updates=self.updates)
        super()._emit_fired(*arguments)


def _changed(keyed: Keyed) -> Keyed:
    batch = keyed.batch
    times, ticks, kinds = carried(batch)
    codes = [0] * len(batch) if kinds is None else kinds.tolist()
    values = list(map(Changed, batch.values(), codes))
    return Keyed(Records(values, times, ticks), keyed.keys, keyed.codes)

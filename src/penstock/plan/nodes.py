"""Plan nodes are values: a step, its definition, and where its input comes from. An illegal one cannot be built."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.changes import APPENDS, Changes
from penstock.errors import PlanError
from penstock.functions import call_of
from penstock.ids import StepId
from penstock.plan.changelog import emitted_changes
from penstock.plan.definition import ERROR_POLICIES, Definition, StateDeclaration
from penstock.plan.exchange import Exchange
from penstock.plan.pairing import check_inputs
from penstock.plan.signatures import check_calls
from penstock.state.descriptors import names_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/ -]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An edge, as seen from its end: an output of `step` (its main one, or a side output), through an exchange or not."""

    step: StepId
    tag: str | None = None
    exchange: Exchange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A step. `named`: by the user; otherwise its id was derived and changes when the program does."""

    step: StepId
    named: bool
    definition: Definition
    inputs: tuple[Input, ...] = ()
    previous_names: tuple[str, ...] = ()
    """What the step was called in former programs: its state, its position, its place in a target are still known by it."""
    emits: Changes = APPENDS
    """The kinds of change in its output."""

    def __post_init__(self) -> None:
        for name in (self.step, *self.previous_names):
            if not _NAME.fullmatch(name):
                raise PlanError(
                    f"{name!r} cannot be the name of a step",
                    hint="use letters, digits, spaces and _ . : / - ; at most 100 of them, beginning with a letter or digit",
                )
        if self.previous_names and not self.named:
            raise PlanError(f"a step has previous_names={self.previous_names!r}, but no name", hint="give it a name= too")
        if self.step in self.previous_names:
            raise PlanError(f"previous_names of step {self.step!r} has the name that it has", hint="leave that out")
        check_inputs(self.step, self.definition, tuple(edge.exchange for edge in self.inputs))

    @property
    def stateful(self) -> bool:
        return bool(self.definition.states(self.step))

    def states(self) -> tuple[StateDeclaration, ...]:
        return self.definition.states(self.step)


@dataclass(frozen=True, slots=True)
class Graph:
    """A program, as a value: nodes in the order they were written, which is a topological order."""

    nodes: Mapping[StepId, Node] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Graph:
        return cls(MappingProxyType({node.step: node for node in nodes}))

    def __reduce__(self) -> tuple[Callable[[Iterable[Node]], Graph], tuple[tuple[Node, ...]]]:
        return Graph.of, (tuple(self),)

    def add(
        self,
        definition: Definition,
        inputs: tuple[Input, ...],
        *,
        name: str | None,
        label: str,
        previous_names: Sequence[str] = (),
    ) -> Graph:
        """The program with one step more, which is its `newest`."""
        if definition.errors not in ERROR_POLICIES:
            raise PlanError(f"errors={definition.errors!r}", hint=f"choose one of {', '.join(map(repr, ERROR_POLICIES))}")
        if name is not None and StepId(name) in self.nodes:
            raise PlanError(f"there are two steps named {name!r}", hint="give each step a name of its own")
        step = StepId(name) if name is not None else self._derived(label)
        former = names_of(previous_names)
        for other in self:
            if both := set(former) & set(other.previous_names):
                raise PlanError(
                    f"the steps {other.step!r} and {step!r} both say that they were called {min(both)!r}",
                    hint="one of them goes on with what it has left",
                )
        check_calls(step, definition.calls())
        for given in inputs:
            if given.exchange is not None and callable(given.exchange.selector):
                check_calls(step, [call_of(given.exchange.selector, "key", "value")])
        emits = emitted_changes(self, step, definition, inputs)
        node = Node(step=step, named=name is not None, definition=definition, inputs=inputs, previous_names=former, emits=emits)
        return Graph.of((*self, node))

    def _derived(self, label: str) -> StepId:
        number = 1
        while StepId(f"{label}-{number}") in self.nodes:
            number += 1
        return StepId(f"{label}-{number}")

    @property
    def newest(self) -> Node:
        *_, newest = self
        return newest

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

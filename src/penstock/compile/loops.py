"""The loops of a program: which steps are in them, whether they are whole, and how they will run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import PlanError
from penstock.ids import StepId
from penstock.plan.nodes import Graph, Node
from penstock.runtime.exchange import Channel
from penstock.runtime.job import LoopPlan
from penstock.runtime.operators.loop import LoopHead, LoopTail


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop of a program. `body`: the steps that records pass on their way from the head to the tail, these two included."""

    head: StepId
    tail: StepId
    body: frozenset[StepId]


def loops_of(graph: Graph) -> list[Loop]:
    """The loops that are closed."""
    found = []
    for node in graph:
        if isinstance(node.definition, LoopTail):
            head = node.definition.loop
            body = behind(graph, head) & before(graph, node.step)
            found.append(Loop(head=head, tail=node.step, body=body))
    return found


def behind(graph: Graph, step: StepId) -> frozenset[StepId]:
    """A step, and those that get what comes of its output."""
    found = {step}
    for node in graph:
        if any(edge.step in found for edge in node.inputs):
            found.add(node.step)
    return frozenset(found)


def before(graph: Graph, step: StepId) -> frozenset[StepId]:
    """A step, and those whose output comes to it."""
    found = {step}
    for node in reversed(list(graph)):
        if node.step in found:
            found.update(edge.step for edge in node.inputs)
    return frozenset(found)


def check_loops(graph: Graph) -> None:
    """Raise `PlanError` unless every loop is closed, and none is within another."""
    loops = loops_of(graph)
    closed = {loop.head for loop in loops}
    for node in graph:
        if isinstance(node.definition, LoopHead) and node.step not in closed:
            raise PlanError(
                f"the loop {node.step!r} is never closed",
                hint="say what goes back to its beginning: loop.close_with(stream); or leave iterate out",
            )
    for outer in loops:
        for inner in loops:
            if inner is not outer and inner.head in outer.body:
                raise PlanError(
                    f"the loop {inner.head!r} is within the loop {outer.head!r}",
                    hint="close one loop before the next begins; or let one loop do both, with the step to do next in the record",
                )


def plan_loops(
    graph: Graph, loops: Iterable[Loop], levels: Mapping[StepId, int], channels: Iterable[Channel], first_store: int
) -> tuple[LoopPlan, ...]:
    """How loops will run. `first_store`: the number of the first stage that is not taken."""
    made = list(channels)
    return tuple(
        LoopPlan(
            head=loop.head,
            tail=loop.tail,
            begins=levels[loop.head],
            ends=levels[loop.tail],
            store=first_store + number,
            ways=(ways := _straight(list(graph), loop, levels, made)),
            laps=ways is not None and _can_lap(graph, loop, levels),
        )
        for number, loop in enumerate(loops)
    )


def _can_lap(graph: Graph, loop: Loop, levels: Mapping[StepId, int]) -> bool:
    """May the stage of the tail be run several times in an epoch? Not with state that is not kept by key, which counts epochs, or
    compares copies; nor if another loop begins or ends there."""
    here = [node for node in graph if levels[node.step] == levels[loop.tail]]
    alone = not any(isinstance(node.definition, LoopHead | LoopTail) for node in here if node.step != loop.tail)
    return alone and all(state.scope == "keyed" for node in here for state in node.states())


def _straight(nodes: list[Node], loop: Loop, levels: Mapping[StepId, int], channels: list[Channel]) -> tuple[int, ...] | None:
    """The channels from the head, if they all lead by key to the stage of the tail, and nothing takes another way."""
    if levels[loop.tail] != levels[loop.head] + 1:
        return None
    for node in nodes:
        for edge in node.inputs:
            by_key = edge.exchange is not None and edge.exchange.kind == "key_by"
            if edge.step == loop.head and not (by_key and levels[node.step] == levels[loop.tail]):
                return None
    return tuple(channel.index for channel in channels if channel.step == loop.head)

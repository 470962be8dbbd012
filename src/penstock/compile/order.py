"""Which steps see order, and what must be kept in order for them.

A step sees order if what it does with a record may depend on the records and timers before it: keyed functions, rolling
aggregations, windows with functions, triggers or evictors. Steps without state do not, nor do windows of declared aggregates,
over columns or not. A `process` without state is given ticks where there are any, for it can ask for the watermark. Steps of a
loop are given none: the order in which feedback and new records meet is not promised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.compile.loops import loops_of
from penstock.connectors.protocol import ReadsInOrder
from penstock.ids import StepId
from penstock.plan.definition import Definition
from penstock.plan.nodes import Graph
from penstock.runtime.operators.source import SourceStep
from penstock.runtime.operators.stateless import Stateless
from penstock.windows.columnar.eligible import why_not_columnar
from penstock.windows.columnar.merge import MergeStep
from penstock.windows.step import WindowStep


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderOf:
    """`ordered`: steps whose output has ticks; `takers`: steps that are given ticks; `in_turn`: those that take the records of
    several inputs by ticks; `paced`: sources that are read in order of event time."""

    ordered: frozenset[StepId]
    takers: frozenset[StepId]
    in_turn: frozenset[StepId]
    paced: frozenset[StepId]


def sees_order(definition: Definition) -> bool:
    if isinstance(definition, WindowStep):
        return why_not_columnar(replace(definition, columnar=True)) is not None
    return definition.sees_order


def asks_time(definition: Definition) -> bool:
    """A step without state that can ask for the watermark."""
    return isinstance(definition, Stateless) and definition.what == "process"


def keeps_time(definition: Definition) -> bool:
    """Is this a source with watermarks that move as its records do?"""
    if not isinstance(definition, SourceStep) or definition.watermarks is None:
        return False
    return definition.watermarks.by_records


def order_of(graph: Graph) -> OrderOf:
    """Pure. Windows over columns take records in any order, and give their results in order of time."""
    wanted: set[StepId] = set()
    """Steps whose output is seen in order by one that follows, whatever is between."""
    with_ticks: set[StepId] = set()
    takers: set[StepId] = set()
    seen_as_given: set[StepId] = set()
    """Steps that see order, and those that hand records to one without an exchange: nothing else merges their inputs."""
    looped = frozenset(step for loop in loops_of(graph) for step in loop.body)
    """Feedback has no place in an order, so that none is kept for the steps that take it."""
    for node in reversed(list(graph)):
        if node.step in looped:
            continue
        here = sees_order(node.definition)
        again = isinstance(node.definition, MergeStep | WindowStep)  # which have ticks of their own
        if here or asks_time(node.definition) or (node.step in with_ticks and not again):
            takers.add(node.step)
        if here:
            seen_as_given.add(node.step)
        for edge in node.inputs:
            if edge.exchange is None and node.step in seen_as_given:
                seen_as_given.add(edge.step)
            if here or node.step in wanted:
                wanted.add(edge.step)
            if node.step in takers:
                with_ticks.add(edge.step)
    paced = frozenset(node.step for node in graph if node.step in wanted and keeps_time(node.definition))
    behind: set[StepId] = set(paced)
    for node in graph:
        if node.step not in looped and any(edge.step in behind for edge in node.inputs):
            behind.add(node.step)
    ordered = frozenset(with_ticks & behind)
    in_turn = frozenset(
        node.step
        for node in graph
        if len(node.inputs) > 1 and node.step in seen_as_given - looped and any(edge.step in ordered for edge in node.inputs)
    )
    return OrderOf(ordered=ordered, takers=frozenset(takers), in_turn=in_turn, paced=paced)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderNotes:
    """For explain: by step, what it sees of order; by source, what it promises to steps that see order."""

    steps: dict[StepId, str]
    sources: dict[StepId, str]


def summary_of(graph: Graph, guarantee: str) -> OrderNotes:
    """Of the graph that runs. Pure."""
    behind: dict[StepId, set[StepId]] = {}
    wanted: set[StepId] = set()
    steps: dict[StepId, str] = {}
    loops = {step: loop.head for loop in loops_of(graph) for step in loop.body}
    for node in graph:
        mine = {node.step} if isinstance(node.definition, SourceStep) else set()
        behind[node.step] = mine.union(*(behind[edge.step] for edge in node.inputs))
        if node.step in loops:
            behind[node.step] = {loops[node.step]}
        if sees_order(node.definition):
            wanted |= behind[node.step]
    reasons = {step: why_as_it_comes(graph.nodes[step].definition, guarantee) for step in wanted}
    for node in graph:
        if sees_order(node.definition):
            loose = sorted(step for step in behind[node.step] if reasons[step] is not None)
            steps[node.step] = (
                f"as input arrives, by {', '.join(loose)}" if loose else "of event time, however the input is cut into epochs"
            )
    shown = {step: "by event time" if why is None else f"as it arrives: {why}" for step, why in reasons.items()}
    return OrderNotes(steps=steps, sources=shown)


def why_as_it_comes(definition: Definition, guarantee: str) -> str | None:
    """Why records do not come in order of event time from a source, or a loop; None if they do."""
    if not isinstance(definition, SourceStep):
        return "it is a loop"
    if definition.watermarks is None:
        return "it has no watermarks"
    if not definition.watermarks.by_records:
        return "its watermarks do not move as its records do"
    if not (isinstance(definition.source, ReadsInOrder) and definition.source.reads_in_order):
        return "this source cannot stop anywhere"
    if guarantee == "at-most-once":
        return "at most once"
    return None

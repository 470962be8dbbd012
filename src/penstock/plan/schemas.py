"""What a plan knows of the records of its streams: asked of definitions, from the sources on, when somebody wants to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.ids import StepId
from penstock.plan.schema import Schema

if TYPE_CHECKING:
    from penstock.plan.nodes import Graph, Input

Known = dict[StepId, Schema | None]
"""The schemas of steps that were asked already."""


def schema_of(graph: Graph, edge: Input, known: Known, *, ask: bool = True) -> Schema | None:
    """What is known of the records of an edge; `known` learns it. `ask=False`: without having a source look at its input."""
    if edge.tag is not None:
        return None
    found: Known = {}
    todo = [edge.step]
    while todo:
        step = todo[-1]
        if step in known or step in found:
            todo.pop()
            continue
        node = graph.nodes[step]
        waiting = [i.step for i in node.inputs if i.tag is None and i.step not in known and i.step not in found]
        if waiting:
            todo += waiting
            continue
        todo.pop()
        if not node.inputs and not ask:
            found[step] = None
            continue
        inputs = tuple(None if i.tag is not None else known.get(i.step, found.get(i.step)) for i in node.inputs)
        found[step] = node.definition.output(inputs)
    if ask:
        known.update(found)
    return known.get(edge.step, found.get(edge.step))

"""Which kinds of change flow along the edges of a plan, and whether the steps take them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.changes import APPENDS, Changes, kinds_text
from penstock.errors import PlanError
from penstock.plan.definition import DEAD_LETTERS, Definition

if TYPE_CHECKING:
    from penstock.ids import StepId
    from penstock.plan.nodes import Graph, Input


def changes_of(graph: Graph, edge: Input) -> Changes:
    """The kinds of change that an edge carries."""
    return APPENDS if edge.tag == DEAD_LETTERS else graph.nodes[edge.step].emits


def emitted_changes(graph: Graph, step: StepId, definition: Definition, inputs: tuple[Input, ...]) -> Changes:
    """The kinds of change that a new step emits; `PlanError` if it does not take those of its inputs."""
    given = tuple(changes_of(graph, edge) for edge in inputs)
    for port, (edge, changes) in enumerate(zip(inputs, given, strict=True)):
        accepted = definition.accepts_from(port)
        if unknown := changes - accepted:
            raise PlanError(
                f"step {step!r} does not take {kinds_text(unknown)}, which step {edge.step!r} emits",
                detail=f"{step}: {definition.kind}; it takes {kinds_text(accepted)}",
                hint=definition.changes_hint,
            )
        if changes != APPENDS and edge.exchange is not None and edge.exchange.kind == "rebalance":
            raise PlanError(
                f"step {step!r}: rebalance() would put changes of one row out of order",
                detail=f"step {edge.step!r} emits {kinds_text(changes)}",
                hint="key_by(...) keeps the changes of each key in order; or rebalance before the rows become changes",
            )
    return definition.emits(given)

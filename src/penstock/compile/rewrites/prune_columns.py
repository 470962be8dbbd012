"""A source reads only the columns that the steps after it use.

Each step says what it uses of its input, given what is used of its output (`Definition.uses`): from the ends of the program back
to its sources. A step that sees whole records uses all there is. A key that is a function, or a position, sees whole records too.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.connectors.protocol import PrunesColumns
from penstock.ids import StepId
from penstock.plan.nodes import Graph, Input, Node
from penstock.runtime.operators.source import SourceStep
from penstock.windows.columnar.partial import PartialStep

Wanted = frozenset[str] | None
"""Columns; None: whole records."""


def prune_columns(graph: Graph) -> Graph:
    wanted: dict[StepId, Wanted] = {}
    strict: set[StepId] = set()
    for node in reversed(list(graph)):
        used = node.definition.uses(wanted.get(node.step))
        for edge in node.inputs:
            mine = used if edge.tag is None else _of_side_output(graph, edge)
            _want(wanted, edge, mine)
            if node.definition.names_columns or node.step in strict:
                strict.add(edge.step)
    return Graph.of(_pruned(node, wanted.get(node.step), node.step in strict) for node in graph)


def _want(wanted: dict[StepId, Wanted], edge: Input, used: Wanted) -> None:
    """An edge uses some columns of the step that it comes from."""
    key = _key_columns(edge)
    before = wanted.get(edge.step, frozenset())
    wanted[edge.step] = None if used is None or key is None or before is None else before | used | key


def _of_side_output(graph: Graph, edge: Input) -> Wanted:
    """A side output may hold whole records, unless what they are does not depend on who takes them."""
    return frozenset() if isinstance(graph.nodes[edge.step].definition, PartialStep) else None


def _key_columns(edge: Input) -> Wanted:
    exchange = edge.exchange
    if exchange is None or exchange.selector is None:
        return frozenset()
    fields = exchange.key_fields
    if fields is None or not all(isinstance(field, str) for field in fields):
        return None
    return frozenset(map(str, fields))


def _pruned(node: Node, wanted: Wanted, strict: bool) -> Node:
    definition = node.definition
    if wanted is None or not isinstance(definition, SourceStep) or not isinstance(definition.source, PrunesColumns):
        return node
    watermarks = definition.watermarks
    if watermarks is not None:
        if callable(watermarks.timestamp) or watermarks.generator is not None:
            return node
        if watermarks.timestamp is not None:
            wanted = wanted | {watermarks.timestamp}
    source = definition.source.with_columns(sorted(wanted), strict=strict)
    return node if source is None else replace(node, definition=replace(definition, source=source))

"""Declared aggregates of aligned event-time windows are computed over columns, before and behind the exchange.

Window steps over the same keyed stream share one partial aggregation, by slices that fit all of them.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.ids import StepId
from penstock.plan.nodes import Graph, Input, Node
from penstock.runtime.exchange import Exchange
from penstock.windows.aggregates import Aggregate
from penstock.windows.columnar.eligible import why_not_columnar
from penstock.windows.columnar.grid import common_slice, grid_of
from penstock.windows.columnar.merge import MergeStep
from penstock.windows.columnar.partial import STRAGGLERS, PartialStep, unnamed
from penstock.windows.declared import Declared
from penstock.windows.step import WindowStep

Source = tuple[StepId, str | None, Exchange]


def columnar_windows(graph: Graph) -> Graph:
    together: dict[Source, list[Node]] = {}
    for node in graph:
        if isinstance(node.definition, WindowStep) and why_not_columnar(node.definition) is None:
            (edge,) = node.inputs
            assert edge.exchange is not None
            together.setdefault((edge.step, edge.tag, edge.exchange), []).append(node)
    first = {nodes[0].step: (source, nodes) for source, nodes in together.items()}
    merges: dict[StepId, Node] = {}
    made = Graph()
    for node in graph:
        if node.step in first:
            source, nodes = first[node.step]
            partial = _partial(source, nodes, graph)
            made.nodes[partial.step] = partial
            merges.update({each.step: _merge(each, partial) for each in nodes})
        made.nodes[node.step] = merges.get(node.step, node)
    return made


def _partial(source: Source, nodes: list[Node], graph: Graph) -> Node:
    step, tag, exchange = source
    aggregates = tuple(dict.fromkeys(unnamed(one) for node in nodes for one in _declared(node)))
    slices = common_slice([grid_of(_window(node).spec) for node in nodes])
    whole = any(_window(node).spec.late is not None for node in nodes)
    name = StepId(f"{nodes[0].step}/partial"[:100])
    while name in graph.nodes:
        name = StepId(f"{name[:-1]}+")
    definition = PartialStep(exchange=exchange, slices=slices, aggregates=aggregates, whole_records=whole)
    return Node(step=name, named=nodes[0].named, definition=definition, inputs=(Input(step=step, tag=tag),))


def _merge(node: Node, partial: Node) -> Node:
    definition = partial.definition
    assert isinstance(definition, PartialStep)
    inputs = tuple(Input(step=partial.step, tag=tag, exchange=definition.exchange) for tag in (None, STRAGGLERS))
    return replace(node, definition=MergeStep(window=_window(node), shared=definition.aggregates), inputs=inputs)


def _window(node: Node) -> WindowStep:
    assert isinstance(node.definition, WindowStep)
    return node.definition


def _declared(node: Node) -> tuple[Aggregate, ...]:
    declared = _window(node).body.incremental
    assert isinstance(declared, Declared)
    return declared.aggregates

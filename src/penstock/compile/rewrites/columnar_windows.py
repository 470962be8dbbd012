"""Declared aggregates of event-time windows are computed over columns, before and behind the exchange.

Window steps over the same keyed stream share one partial aggregation: aligned windows by slices that fit all of them, sessions by
their gap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.ids import Milliseconds, StepId
from penstock.plan.definition import Definition
from penstock.plan.exchange import Exchange
from penstock.plan.nodes import Graph, Input, Node
from penstock.windows.aggregates import Aggregate
from penstock.windows.assigners import SessionWindows
from penstock.windows.columnar.eligible import why_not_columnar
from penstock.windows.columnar.grid import common_slice, grid_of
from penstock.windows.columnar.partial import STRAGGLERS, unnamed
from penstock.windows.columnar.sessions import SessionMergeStep, SessionPartialStep
from penstock.windows.columnar.slices import SliceMergeStep, SlicePartialStep
from penstock.windows.declared import Declared
from penstock.windows.step import WindowStep

Shared = tuple[StepId, str | None, Exchange, Milliseconds | None]
"""What steps that share a partial aggregation have in common: their input, and the gap of sessions."""


def columnar_windows(graph: Graph) -> Graph:
    together: dict[Shared, list[Node]] = {}
    for node in graph:
        if isinstance(node.definition, WindowStep) and why_not_columnar(node.definition) is None:
            (edge,) = node.inputs
            assert edge.exchange is not None
            together.setdefault((edge.step, edge.tag, edge.exchange, _gap(node)), []).append(node)
    first = {nodes[0].step: (shared, nodes) for shared, nodes in together.items()}
    merges: dict[StepId, Node] = {}
    made: list[Node] = []
    for node in graph:
        if node.step in first:
            shared, nodes = first[node.step]
            aggregates = tuple(dict.fromkeys(unnamed(one) for each in nodes for one in _declared(each)))
            partial = _partial(shared, nodes, aggregates, graph)
            made.append(partial)
            merges.update({each.step: _merge(each, partial, shared[2], aggregates) for each in nodes})
        made.append(merges.get(node.step, node))
    return Graph.of(made)


def _partial(shared: Shared, nodes: list[Node], aggregates: tuple[Aggregate, ...], graph: Graph) -> Node:
    step, tag, exchange, gap = shared
    common: dict[str, Any] = {
        "window": nodes[0].step,
        "exchange": exchange,
        "aggregates": aggregates,
        "whole_records": any(_window(node).spec.late is not None for node in nodes),
    }
    definition: Definition
    if gap is not None:
        definition = SessionPartialStep(**common, gap_ms=gap)
    else:
        slices = common_slice([grid_of(_window(node).spec) for node in nodes])
        definition = SlicePartialStep(**common, slices=slices)
    name = StepId(f"{nodes[0].step}/partial"[:100])
    while name in graph.nodes:
        name = StepId(f"{name[:-1]}+")
    return Node(
        step=name,
        named=nodes[0].named,
        definition=definition,
        inputs=(Input(step=step, tag=tag),),
        previous_names=tuple(f"{former}/partial"[:100] for former in nodes[0].previous_names),
    )


def _merge(node: Node, partial: Node, exchange: Exchange, aggregates: tuple[Aggregate, ...]) -> Node:
    inputs = tuple(Input(step=partial.step, tag=tag, exchange=exchange) for tag in (None, STRAGGLERS))
    make = SliceMergeStep if _gap(node) is None else SessionMergeStep
    return replace(node, definition=make(window=_window(node), shared=aggregates), inputs=inputs)


def _gap(node: Node) -> Milliseconds | None:
    assigner = _window(node).spec.assigner
    return assigner.gap_ms if isinstance(assigner, SessionWindows) else None


def _window(node: Node) -> WindowStep:
    assert isinstance(node.definition, WindowStep)
    return node.definition


def _declared(node: Node) -> tuple[Aggregate, ...]:
    declared = _window(node).body.incremental
    assert isinstance(declared, Declared)
    return declared.aggregates

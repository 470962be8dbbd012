"""A source reads only the columns that the steps after it say they use.

That is known when every consumer is a `map_batches(columns=...)`, or aggregates columns for windows. A `key_by` is followed by
steps that see whole records.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.connectors.files.source import FileSource
from penstock.plan.nodes import Graph, Node
from penstock.runtime.operators.map_batches import MapBatches
from penstock.runtime.operators.source import SourceStep
from penstock.windows.columnar.partial import PartialStep


def prune_columns(graph: Graph) -> Graph:
    pruned = Graph()
    for node in graph:
        pruned.nodes[node.step] = _pruned(node, graph)
    return pruned


def _pruned(node: Node, graph: Graph) -> Node:
    definition = node.definition
    if not isinstance(definition, SourceStep) or not isinstance(definition.source, FileSource):
        return node
    source = definition.source
    if source.columns is not None or source.schema is not None:
        return node
    used: set[str] = set()
    timestamp = None if definition.watermarks is None else definition.watermarks.timestamp
    if callable(timestamp) or (definition.watermarks is not None and definition.watermarks.generator is not None):
        return node
    if timestamp is not None:
        used.add(timestamp)
    consumers = [(other, i) for other in graph for i in other.inputs if i.step == node.step]
    for consumer, edge in consumers:
        wanted = consumer.definition.columns if isinstance(consumer.definition, MapBatches | PartialStep) else None
        if wanted is None or edge.exchange is not None:
            return node
        used.update(wanted)
    if not consumers:
        return node
    return replace(node, definition=replace(definition, source=replace(source, columns=sorted(used))))

"""Rewrites: one per module, each a pure function from a graph to a graph with the same meaning."""

from collections.abc import Callable, Sequence

from penstock.compile.rewrites.columnar_windows import columnar_windows
from penstock.compile.rewrites.prune_columns import prune_columns
from penstock.plan.nodes import Graph

REWRITES: tuple[Callable[[Graph], Graph], ...] = (columnar_windows, prune_columns)


def rewrite(graph: Graph, steps: Sequence[Callable[[Graph], Graph]] = REWRITES) -> Graph:
    """The graph after all rewrites, in order. The user's graph is left alone."""
    for step in steps:
        graph = step(graph)
    return graph

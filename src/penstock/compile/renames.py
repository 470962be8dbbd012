"""Steps that were called something else, as the program that starts now calls them. Pure.

State, timers, watermarks and source positions follow the step. What is outside of the job does not: a target (the owner of a
folder of files, a row in a database) or a feed continues to know a sink or a source by the name it had first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from penstock.errors import PlanError
from penstock.jobs.manifest import Manifest, StateLayout
from penstock.plan.nodes import Graph
from penstock.runtime.operators.sink import SinkStep
from penstock.runtime.operators.source import SourceStep

T = TypeVar("T")

Renamed = Mapping[str, str]
"""Former name → name."""


def renamed_steps(graph: Graph, names: set[str]) -> dict[str, str]:
    """Which of the names that something was kept under belong to steps that are called something else now.

    A step that has something under its own name has been renamed before.
    """
    found: dict[str, str] = {}
    for node in graph:
        former = [name for name in node.previous_names if name in names and name not in graph.nodes]
        if former and node.step not in names:
            found[former[0]] = node.step
    return found


def former_names(graph: Graph) -> dict[str, str]:
    """Former name → name, of every step that has one."""
    return {name: str(node.step) for node in graph for name in node.previous_names if name not in graph.nodes}


def by_new_name(kept: Mapping[str, T], renamed: Renamed) -> dict[str, T]:
    return {renamed.get(step, step): value for step, value in kept.items()}


def as_called_now(manifest: Manifest, graph: Graph) -> Manifest:
    """The manifest with sources and watermarks under the names of the program. States are claimed by themselves."""
    sources = renamed_steps(graph, set(manifest.sources))
    watermarks = renamed_steps(graph, set(manifest.watermarks))
    if not sources and not watermarks:
        return manifest
    return msgspec.structs.replace(
        manifest,
        sources=by_new_name(manifest.sources, sources),
        watermarks=by_new_name(manifest.watermarks, watermarks),
    )


def known_as(graph: Graph, *layouts: StateLayout | None) -> dict[str, str]:
    """The names by which targets and feeds know the program's sinks and sources; `layouts`: what is committed, newest last."""
    known: dict[str, str] = {}
    for layout in layouts:
        known |= {} if layout is None else layout.known_as
    old = not known and any(layout is not None for layout in layouts)  # of a version that kept no such names
    found: dict[str, str] = {}
    for node in graph:
        if isinstance(node.definition, SinkStep | SourceStep):
            former = [name for name in node.previous_names if name not in graph.nodes and (old or name in known)]
            found[node.step] = known.get(node.step) or (known.get(former[0], former[0]) if former else str(node.step))
    for step, name in found.items():
        others = [other for other, taken in found.items() if taken == name and other != step]
        if others:
            raise PlanError(
                f"{step!r} and {others[0]!r} would both be known as {name!r} outside of the job",
                detail=f"{others[0] if step == name else step} was called that, and its target or feed knows it by that name",
                hint="call the new step something else",
            )
    return found

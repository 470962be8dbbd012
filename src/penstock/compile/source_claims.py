"""Which sources a program resumes. Pure.

Sources are claimed by step name. A new one starts as configured; one that is gone would take its position with it, which is
refused unless it had come to its end or the user says so; one of another kind cannot resume from the old one's position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.connectors.protocol import PositionKind, Source
from penstock.errors import StateError
from penstock.jobs.manifest import SourceState
from penstock.plan.nodes import Graph
from penstock.runtime.operators.source import SourceStep


@dataclass(frozen=True, slots=True)
class SourceClaims:
    """The sources of a start: those that resume, those that are new, and those that are gone."""

    kept: dict[str, SourceState]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def claim_sources(
    graph: Graph, before: Mapping[str, SourceState], *, allow_dropped: bool
) -> tuple[SourceClaims, list[StateError]]:
    """What becomes of the sources that were there, and why that is refused."""
    now = {str(node.step): node.definition.source for node in graph if isinstance(node.definition, SourceStep)}
    removed = [step for step in before if step not in now]
    problems: list[StateError] = []
    lost = sorted(step for step in removed if before[step].position is not None and not before[step].ended)
    if lost and not allow_dropped:
        problems.append(
            StateError(
                f"the job has read from sources that the program no longer has: {', '.join(lost)}",
                detail="\n".join(f"{step}: {before[step].kind or 'source'} at {shown(before[step])}" for step in lost),
                hint="give the sources the names they had; or start with --allow-dropped-state to lose their positions for good",
            )
        )
    for step, source in now.items():
        was, kind = before.get(step, SourceState()).kind, kind_of(source)
        if was and was != kind:
            problems.append(
                StateError(
                    f"source {step!r} was a {was} and is a {kind} now: it cannot resume from the old position",
                    detail=f"position: {shown(before[step])}",
                    hint="give the new source another name and drop the old position with --allow-dropped-state; "
                    f"a class that was only renamed says position_kind = {was!r}",
                )
            )
    kept = {step: state for step, state in before.items() if step in now}
    return SourceClaims(kept, tuple(step for step in now if step not in before), tuple(removed)), problems


def shown(state: SourceState, most: int = 160) -> str:
    """A position, for people."""
    text = "its beginning" if state.position is None else str(state.position)
    text = text if len(text) <= most else f"{text[:most]}…"
    return f"{text} (ended)" if state.ended else text


def kind_of(source: Source) -> str:
    """The kind of a source's positions: its class, unless it says otherwise (say because the class was renamed)."""
    return source.position_kind if isinstance(source, PositionKind) else type(source).__name__

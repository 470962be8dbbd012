"""The cut into stages.

A step's level is the greatest number of exchanges on a way to it from a source; the steps of a level are a stage. All edges
between two neighbouring stages share one shuffle, so an epoch is one linear chain of stages however the graph branches. An
edge that skips levels is relayed, undecoded, by the stages between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.changes import APPENDS
from penstock.compile.loops import loops_of, plan_loops
from penstock.compile.order import order_of
from penstock.errors import PlanError
from penstock.ids import StepId
from penstock.plan.exchange import Exchange
from penstock.plan.nodes import Graph
from penstock.records import DICT_ROW, RowType
from penstock.runtime.exchange import Channel
from penstock.runtime.job import LocalInput, LoopPlan, Stage, StageStep
from penstock.runtime.operators.loop import LoopHead
from penstock.runtime.operators.map_batches import MapBatches
from penstock.runtime.operators.source import SourceStep
from penstock.state.key_groups import CRC32, KeyGroups

FORWARD = Exchange(kind="forward")

StateIds = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPlan:
    """The stages of a program, and what identifies their state layout."""

    stages: tuple[Stage, ...]
    loops: tuple[LoopPlan, ...] = ()
    rows: tuple[RowType, ...]
    fingerprint: str


def levels_of(graph: Graph) -> dict[StepId, int]:
    levels: dict[StepId, int] = {}
    for node in graph:
        levels[node.step] = max((levels[i.step] + (i.exchange is not None) for i in node.inputs), default=0)
    return levels


def cut(graph: Graph, state_ids: StateIds, parallelism: int, key_groups: KeyGroups) -> StagedPlan:
    """Cut a program into stages."""
    if not graph.nodes:
        raise PlanError(
            "the program has no steps", hint="read something with env.from_source(...) and write it with sink_to(...)"
        )
    levels, order = levels_of(graph), order_of(graph)
    loops = loops_of(graph)
    channels = _Channels({step: loop.head for loop in loops for step in loop.body})
    steps: dict[int, list[StageStep]] = {level: [] for level in range(max(levels.values()) + 1)}
    for node in graph:
        level = levels[node.step]
        local = []
        for port, source in enumerate(node.inputs):
            if source.exchange is None and levels[source.step] == level:
                local.append(LocalInput(step=source.step, tag=source.tag, port=port))
            else:
                exchange = source.exchange or FORWARD
                ordered = node.step in order.in_turn or (source.step in order.ordered and node.step in order.takers)
                channels.connect(
                    source.step, source.tag, exchange, levels[source.step], level, (node.step, port), ordered=ordered
                )
        steps[level].append(
            StageStep(
                step=node.step,
                definition=node.definition,
                inputs=max(1, len(node.inputs)),
                local=tuple(local),
                ordered=node.step in order.ordered,
                in_turn=node.step in order.in_turn,
                paced=node.step in order.paced,
                updates=node.emits != APPENDS,
            )
        )
    stages = tuple(
        Stage(
            index=level,
            steps=tuple(steps[level]),
            channels_in=tuple(c for c in channels.made if c.from_stage == level - 1),
            channels_out=tuple(c for c in channels.made if c.from_stage == level),
            state_ids=tuple(sorted(_ids(graph, [s.step for s in steps[level]], state_ids))),
        )
        for level in sorted(steps)
    )
    plans = plan_loops(graph, loops, levels, channels.made, len(stages))
    stages += tuple(Stage(index=p.store, steps=(), state_ids=tuple(_of_step(graph, p.head, state_ids))) for p in plans)
    layout = [[list(stage.state_ids) for stage in stages], parallelism, key_groups.count]
    if key_groups.hash != CRC32:  # which older fingerprints do not tell
        layout.append(key_groups.hash)
    fingerprint = hashlib.sha256(json.dumps(layout).encode()).hexdigest()[:16]
    return StagedPlan(stages=stages, loops=plans, rows=_rows(graph), fingerprint=fingerprint)


class _Channels:
    """Channels made so far; edges that carry the same records to the same level share one."""

    def __init__(self, loops: Mapping[StepId, StepId]) -> None:
        self._loops = loops
        """By step of a loop, the loop."""
        self.made: list[Channel] = []
        self._known: dict[tuple[StepId, str | None, Exchange, int, bool], list[int]] = {}

    def connect(
        self,
        step: StepId,
        tag: str | None,
        exchange: Exchange,
        from_level: int,
        to_level: int,
        end: tuple[StepId, int],
        *,
        ordered: bool,
    ) -> None:
        hops = self._known.setdefault((step, tag, exchange, from_level, ordered), [])
        while len(hops) < to_level - from_level:
            hop = len(hops)
            self.made.append(
                Channel(
                    index=len(self.made),
                    exchange=exchange if hop == 0 else FORWARD,
                    from_stage=from_level + hop,
                    step=step,
                    tag=tag,
                    relay_of=hops[-1] if hops else None,
                    ordered=ordered,
                    loop=self._loops.get(step),
                )
            )
            hops.append(len(self.made) - 1)
        last = hops[to_level - from_level - 1]
        self.made[last] = replace(self.made[last], ends=(*self.made[last].ends, end))


def _ids(graph: Graph, steps: list[StepId], state_ids: StateIds) -> list[int]:
    """The states that live in the stage of these steps. That of a loop does not: it has a stage of its own."""
    return [number for step in steps if not _begins_loop(graph, step) for number in _of_step(graph, step, state_ids)]


def _begins_loop(graph: Graph, step: StepId) -> bool:
    return isinstance(graph.nodes[step].definition, LoopHead)


def _of_step(graph: Graph, step: StepId, state_ids: StateIds) -> list[int]:
    return [state_ids[state.step, state.name] for state in graph.nodes[step].states()]


def _rows(graph: Graph) -> tuple[RowType, ...]:
    rows = [DICT_ROW]
    for node in graph:
        definition = node.definition
        row = (
            definition.source.row
            if isinstance(definition, SourceStep)
            else definition.row
            if isinstance(definition, MapBatches)
            else None
        )
        if row is not None and row not in rows:
            rows.append(row)
    return tuple(rows)

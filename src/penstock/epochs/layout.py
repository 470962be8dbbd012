"""How committed state is laid out for the program that starts now. Pure.

States are claimed by step and name. A state that nobody claims is refused by name, unless the user says to drop it. When
stages or parallelism differ from the last run's, each new partition's chain is put together from the old files that hold its
groups; nothing is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.errors import StateError
from penstock.ids import Milliseconds, Term
from penstock.plan.nodes import Graph
from penstock.plan.stages import StagedPlan
from penstock.runtime.manifest import StateInfo, StateLayout
from penstock.runtime.operators.operator import StateDeclaration
from penstock.state.descriptors import MapState
from penstock.state.files import FileRef
from penstock.state.handles import state_codec
from penstock.state.key_groups import groups_of
from penstock.state.keys import key_codec

StateIds = dict[tuple[str, str], int]


def claim_states(graph: Graph, before: StateLayout | None, *, allow_dropped: bool) -> tuple[StateIds, dict[str, StateInfo]]:
    """The id of every state of the program: those it had, and new ones for new states."""
    infos = dict(before.ids) if before is not None else {}
    known = {(info.step, info.name): int(number) for number, info in infos.items()}
    declared = {(d.step, d.name): d for node in graph for d in node.states()}
    unclaimed = sorted({step for (step, name) in known if (step, name) not in declared and not name.startswith("timers:")})
    lost = sorted({f"{step}.{name}" for (step, name) in known if (step, name) not in declared and not name.startswith("timers:")})
    if lost and not allow_dropped:
        raise StateError(
            f"the job has state that the program does not claim: {', '.join(lost)}",
            detail=f"steps: {', '.join(unclaimed)}",
            hint="give the steps the names they had; or start with --allow-dropped-state to lose this state for good",
        )
    ids: StateIds = {}
    following = max((int(number) for number in infos), default=0) + 1
    kept: dict[str, StateInfo] = {}
    for key, declaration in declared.items():
        info = describe_state(declaration)
        number = known.get(key)
        if number is None:
            number, following = following, following + 1
        else:
            _check_kind(infos[str(number)], info)
        ids[key] = number
        kept[str(number)] = info
    return ids, kept


def describe_state(declaration: StateDeclaration) -> StateInfo:
    schema = None if declaration.state is None else state_codec(declaration.state).schema
    key_schema = None if declaration.key_type is None else key_codec(declaration.key_type).schema
    return StateInfo(
        step=declaration.step,
        name=declaration.name,
        kind=declaration.kind,
        schema=schema,
        key_schema=key_schema,
        what=declaration.what,
        sub_schema=key_codec(declaration.state.key_type).schema if isinstance(declaration.state, MapState) else None,
        ttl=declaration.state is not None and declaration.state.ttl is not None,
        namespace=declaration.namespace,
    )


def _check_kind(before: StateInfo, now: StateInfo) -> None:
    if before.kind != now.kind:
        raise StateError(
            f"state {now.name!r} of step {now.step!r} was a {before.kind} state and is a {now.kind} state now",
            hint="give the new state another name; the old one can then be dropped with --allow-dropped-state",
        )
    if before.what and now.what and before.what != now.what:
        raise StateError(
            f"what step {now.step!r} keeps has changed since its state was written",
            detail=f"written: {before.what}\nnow: {now.what}",
            hint="give the changed step another name; its old state can then be dropped with --allow-dropped-state",
        )


def lay_out(
    plan: StagedPlan, infos: dict[str, StateInfo], before: StateLayout | None, parallelism: int, max_parallelism: int, term: Term
) -> StateLayout:
    """The layout the take-over epoch commits."""
    stages = [list(stage.state_ids) for stage in plan.stages]
    if before is not None and before.fingerprint == plan.fingerprint:
        return msgspec.structs.replace(before, ids=infos, stages=stages)
    empty: list[list[dict[int, Milliseconds]]] = [[{} for _ in range(parallelism)] for _ in stages]
    if before is None:
        return StateLayout(
            parallelism,
            max_parallelism,
            plan.fingerprint,
            infos,
            stages,
            [[[] for _ in range(parallelism)] for _ in stages],
            empty,
            term,
        )
    chains = [[_chain(before, ids, groups_of(p, parallelism, max_parallelism)) for p in range(parallelism)] for ids in stages]
    due = [[_earliest(before, ids) for _ in range(parallelism)] for ids in stages]
    return StateLayout(parallelism, max_parallelism, plan.fingerprint, infos, stages, chains, due, term)


def _chain(before: StateLayout, ids: Iterable[int], groups: range) -> list[FileRef]:
    """The old files that hold these states in these groups, each narrowed to what its old partition owned."""
    wanted = set(ids)
    found: list[FileRef] = []
    for old_ids, partitions in zip(before.stages, before.chains, strict=True):
        if not wanted & set(old_ids):
            continue
        for partition, chain in enumerate(partitions):
            owned = groups_of(partition, before.parallelism, before.max_parallelism)
            lo, hi = max(owned.start, groups.start), min(owned.stop, groups.stop)
            if lo < hi:
                found += [_narrowed(ref, max(lo, ref.lo), min(hi, ref.hi)) for ref in chain if max(lo, ref.lo) < min(hi, ref.hi)]
    return found


def _narrowed(ref: FileRef, lo: int, hi: int) -> FileRef:
    return msgspec.structs.replace(ref, lo=lo, hi=hi)


def _earliest(before: StateLayout, ids: Iterable[int]) -> dict[int, Milliseconds]:
    """When the first timer of each state is due anywhere: never later than in any one partition."""
    due: dict[int, Milliseconds] = {}
    wanted = set(ids)
    for partitions in before.next_due:
        for times in partitions:
            for state_id, time in times.items():
                if state_id in wanted:
                    due[state_id] = min(time, due.get(state_id, time))
    return due

"""How committed state is laid out for the program that starts now. Pure.

States are claimed as `compatibility` says. When stages or parallelism differ from the last run's, each new partition's chain is
put together from the old files that hold its groups; nothing is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from penstock.compile.compatibility import Judgement, Rewriting
from penstock.compile.stages import StagedPlan
from penstock.ids import Milliseconds, Term
from penstock.jobs.manifest import StateInfo, StateLayout
from penstock.state.files.durable import FileRef
from penstock.state.key_groups import ANY_GROUP, SHARED_GROUP, KeyGroups, groups_of

StateIds = dict[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Claims:
    """The states of a program: their ids, what the next manifest says of them, and those whose entries are to be rewritten.

    `last_id`: the highest id ever given. None is given twice: entries of dropped states stay in files for a while."""

    ids: StateIds
    infos: dict[str, StateInfo]
    rewritings: dict[int, Rewriting]
    last_id: int


def claim_states(judged: Iterable[Judgement], before: StateLayout | None) -> Claims:
    """The id of every state of the program: those it had, and new ones for new states."""
    judged = list(judged)
    last = max((before.last_id if before else 0, *(one.number or 0 for one in judged)), default=0)
    claims = Claims({}, {}, {}, last)
    for one in judged:
        if one.info is None:
            continue
        number = one.number
        if number is None:
            number = last = last + 1
        claims.ids[one.step, one.name] = number
        claims.infos[str(number)] = one.info
        if one.rewriting is not None:
            claims.rewritings[number] = one.rewriting
    return replace(claims, last_id=last)


def lay_out(
    plan: StagedPlan, infos: dict[str, StateInfo], before: StateLayout | None, parallelism: int, key_groups: KeyGroups, term: Term
) -> StateLayout:
    """The layout the take-over epoch commits."""
    stages = [list(stage.state_ids) for stage in plan.stages]
    if before is not None and before.fingerprint == plan.fingerprint:
        return msgspec.structs.replace(before, ids=infos, stages=stages)
    empty: list[list[dict[int, Milliseconds]]] = [[{} for _ in range(parallelism)] for _ in stages]
    if before is None:
        return StateLayout(
            parallelism,
            key_groups.count,
            plan.fingerprint,
            infos,
            stages,
            [[[] for _ in range(parallelism)] for _ in stages],
            empty,
            term,
            key_hash=key_groups.hash,
        )
    chains = [[_chain(before, ids, groups_of(p, parallelism, key_groups.count)) for p in range(parallelism)] for ids in stages]
    due = [[_earliest(before, ids) for _ in range(parallelism)] for ids in stages]
    return StateLayout(
        parallelism, key_groups.count, plan.fingerprint, infos, stages, chains, due, term, key_hash=key_groups.hash
    )


def _chain(before: StateLayout, ids: Iterable[int], groups: range) -> list[FileRef]:
    """The old files that hold these states in these groups, each narrowed to what its old partition owned."""
    wanted = set(ids)
    found: list[FileRef] = []
    for old_ids, partitions in zip(before.stages, before.chains, strict=True):
        kept = wanted & set(old_ids)
        if not kept:
            continue
        for partition, chain in enumerate(partitions):
            owned = groups_of(partition, before.parallelism, before.max_parallelism)
            lo, hi = max(owned.start, groups.start), min(owned.stop, groups.stop)
            if lo < hi:
                found += _narrowed(chain, lo, hi)
        if any(before.ids[str(number)].scope == "broadcast" for number in kept):  # the copies are the same
            found += _narrowed(partitions[-1], SHARED_GROUP, ANY_GROUP.stop)
    return found


def _narrowed(chain: list[FileRef], lo: int, hi: int) -> list[FileRef]:
    """What a chain has of these groups."""
    return [
        msgspec.structs.replace(ref, lo=max(lo, ref.lo), hi=min(hi, ref.hi)) for ref in chain if max(lo, ref.lo) < min(hi, ref.hi)
    ]


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

"""From a program to what runs. Every way to run one, look at one or check one leads through here. Pure.

examine:           rewrite → former names → judge states and sources: what would be refused, and why
claim:             examine → refuse → number the states
compile_program:   claim → cut into stages → lay the state out → the job
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from penstock.compile.compatibility import Judgement, Origin, brings_code, judge, refusals
from penstock.compile.layout import Claims, claim_states, lay_out
from penstock.compile.loops import check_loops
from penstock.compile.renames import by_new_name, known_as, renamed_steps
from penstock.compile.rewrites import REWRITES, rewrite
from penstock.compile.source_claims import SourceClaims, claim_sources
from penstock.compile.stages import cut
from penstock.errors import PenstockError
from penstock.ids import JobId, Milliseconds, Term
from penstock.jobs.manifest import SourceState, StateLayout
from penstock.plan.nodes import Graph
from penstock.runtime.job import CompiledJob
from penstock.state.key_groups import KeyGroups
from penstock.state.stores.store import StoreKind
from penstock.storage import Storage

Rewrites = Sequence[Callable[[Graph], Graph]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a program is to run, and on how many partitions. `mark`: tells its local stores from those of other layouts."""

    name: str
    job: JobId
    storage: Storage
    parallelism: int
    key_groups: KeyGroups
    term: Term
    mark: str = ""
    local_dir: str | None = None
    keep_local_ms: Milliseconds = 7 * 86_400_000
    state_store: StoreKind = "lmdb"
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The graph that runs, and what becomes of all that was there. `problems`: why the start is refused; none: it is not."""

    graph: Graph
    states: tuple[Judgement, ...]
    sources: SourceClaims
    problems: tuple[PenstockError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The graph that runs, and what it resumes of what was there."""

    graph: Graph
    states: Claims
    sources: SourceClaims


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled(Claimed):
    """A program that is ready to run: where its state is, and the job that workers get."""

    layout: StateLayout
    job: CompiledJob


def examine(
    program: Graph,
    state: StateLayout | None,
    sources: Mapping[str, SourceState],
    *,
    allow_dropped: bool,
    origin: Origin | None = None,
    rewrites: Rewrites = REWRITES,
) -> Examined:
    """Rewrite a program, and judge it against what an earlier one has left. `origin`: where that is, if it may not be trusted."""
    check_loops(program)
    graph = rewrite(program, rewrites)
    judged = judge(graph, state)
    kept = by_new_name(sources, renamed_steps(graph, set(sources)))
    claims, problems = claim_sources(graph, kept, allow_dropped=allow_dropped)
    code = brings_code(graph, state, judged, origin) if state is not None and origin is not None else None
    return Examined(
        graph=graph,
        states=tuple(judged),
        sources=claims,
        problems=(*refusals(judged, allow_dropped=allow_dropped), *problems, *([code] if code is not None else [])),
    )


def claim(
    program: Graph,
    state: StateLayout | None,
    sources: Mapping[str, SourceState],
    *,
    allow_dropped: bool,
    origin: Origin | None = None,
    rewrites: Rewrites = REWRITES,
) -> Claimed:
    """Examine a program, and claim what an earlier one has left; what is not claimed, or cannot be read, is refused by name."""
    examined = examine(program, state, sources, allow_dropped=allow_dropped, origin=origin, rewrites=rewrites)
    refuse(examined.problems)
    return Claimed(graph=examined.graph, states=claim_states(examined.states, state), sources=examined.sources)


def refuse(problems: Sequence[PenstockError]) -> None:
    """Raise the first problem, which tells of the others."""
    if problems:
        first, *others = problems
        if others:
            detail = "\n".join([*([first.detail] if first.detail else []), *(f"and {other.what}" for other in others)])
            raise type(first)(first.what, detail=detail, hint=first.hint)
        raise first


def compile_program(
    program: Graph,
    state: StateLayout | None,
    sources: Mapping[str, SourceState],
    target: Target,
    *,
    allow_dropped: bool,
    newest: StateLayout | None = None,
    origin: Origin | None = None,
    rewrites: Rewrites = REWRITES,
) -> Compiled:
    """A program on what an earlier one has left. `newest`: the job's newest layout, if that is not the one to resume from."""
    claimed = claim(program, state, sources, allow_dropped=allow_dropped, origin=origin, rewrites=rewrites)
    graph, states = claimed.graph, claimed.states
    plan = cut(graph, states.ids, target.parallelism, target.key_groups)
    known = known_as(graph, newest, state)
    layout = lay_out(plan, states.infos, state, target.parallelism, target.key_groups, target.term)
    layout = msgspec.structs.replace(layout, last_id=states.last_id, known_as=known)
    job = CompiledJob(
        name=target.name,
        job=target.job,
        storage=target.storage,
        stages=plan.stages,
        loops=plan.loops,
        parallelism=target.parallelism,
        max_parallelism=target.key_groups.count,
        key_hash=target.key_groups.hash,
        state_ids=states.ids,
        known_as=known,
        fingerprint=f"{layout.fingerprint}-{target.mark or layout.made_in}",
        rows=plan.rows,
        local_dir=target.local_dir,
        keep_local_ms=target.keep_local_ms,
        state_store=target.state_store,
        paths=target.paths,
    )
    return Compiled(graph=graph, states=states, sources=claimed.sources, layout=layout, job=job)

"""Becoming the driver of a job: what it goes on from, how its state is laid out for this program, the empty take-over epoch.

take a term → find the head → claim states → lay them out → finish the last driver's commits → commit an empty epoch → sweep
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock import paths
from penstock.config import JobConfig
from penstock.connectors.protocol import Committer
from penstock.epochs.commit import commit_sinks, mark_done
from penstock.epochs.fencing import Head, JobInfo, find_head, open_job, take_term
from penstock.epochs.intents import read_intent
from penstock.epochs.layout import claim_states, lay_out
from penstock.epochs.retention import orphans
from penstock.ids import Epoch, Milliseconds, StepId, Term
from penstock.plan.nodes import Graph
from penstock.plan.stages import cut
from penstock.runtime.job import CompiledJob
from penstock.runtime.manifest import VERSION, Manifest, Restored, StateLayout, load_manifest
from penstock.state.shelves import check_installed
from penstock.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a job is to go on from instead of its own newest epoch. Every file that `before` names is in the job's storage."""

    before: Manifest
    restored: Restored


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A job, taken over: `head` is what was found, `before` what is gone on from."""

    info: JobInfo
    term: Term
    head: Head
    before: Manifest | None
    restored: Restored | None
    layout: StateLayout
    job: CompiledJob


def take_over(
    graph: Graph, config: JobConfig, storage: Storage, start: Start | None, python_paths: tuple[str, ...] = ()
) -> Taken:
    """Take a term, and compile the program on what is committed. Nothing is committed yet."""
    check_installed(config.state_store)
    info = open_job(storage, config.name, config.max_parallelism)
    term = take_term(storage)
    head = find_head(storage, fall_back=config.fall_back)
    before = head.manifest if start is None else start.before
    ids, infos = claim_states(graph, before.state if before else None, allow_dropped=config.allow_dropped_state)
    plan = cut(graph, ids, config.parallelism, config.max_parallelism)
    layout = lay_out(plan, infos, before.state if before else None, config.parallelism, config.max_parallelism, term)
    job = CompiledJob(
        name=config.name,
        job=info.job,
        storage=storage,
        stages=plan.stages,
        parallelism=config.parallelism,
        max_parallelism=config.max_parallelism,
        state_ids=ids,
        fingerprint=f"{layout.fingerprint}-{layout.made_in}",
        rows=plan.rows,
        local_dir=config.local_dir,
        state_store=config.state_store,
        paths=python_paths,
    )
    restored = start.restored if start is not None else before.restored if before is not None else None
    return Taken(info=info, term=term, head=head, before=before, restored=restored, layout=layout, job=job)


def finish_commits(storage: Storage, head: Head, committers: Mapping[StepId, Committer], *, exactly_once: bool) -> None:
    """Commit the sinks of epochs that were committed but not marked done.

    Only of those that led to the head: a driver that woke up late may have left a manifest whose epoch is nobody's past.
    """
    unfinished: list[Manifest] = []
    manifest = head.manifest
    while manifest is not None:
        if manifest.epoch in head.undone:
            unfinished.append(manifest)
        parent = manifest.parent
        further = parent in head.epochs and any(epoch <= parent for epoch in head.undone) if parent is not None else False
        manifest = load_manifest(storage, parent) if parent is not None and further else None
    for manifest in reversed(unfinished):
        if exactly_once:
            commit_sinks(committers, manifest.committables, manifest.epoch)
        mark_done(storage, manifest.epoch)


def take_over_manifest(taken: Taken, config: JobConfig, storage: Storage, now_ms: Milliseconds) -> Manifest:
    """The empty epoch with which this driver begins. Whoever drove before fails to commit from then on."""
    before = taken.before
    newest = max(taken.head.epochs, default=Epoch(0))
    sources = dict(before.sources) if before else {}
    if config.guarantee == "at-most-once":
        sources = {**sources, **read_intent(storage, newest)}
    return Manifest(
        version=VERSION,
        job=taken.info.job,
        epoch=Epoch(newest + 1),
        term=taken.term,
        plan=1,
        parent=before.epoch if before else None,
        processing_time=processing_time(now_ms, before),
        created_ms=now_ms,
        sources=sources,
        watermarks=before.watermarks if before else {},
        state=taken.layout,
        finished=before.finished if before else False,
        restored=taken.restored,
    )


def sweep_orphans(
    storage: Storage, referenced: set[str], term: Term, head: Epoch, committers: Mapping[StepId, Committer]
) -> None:
    """Remove what failed attempts of older terms left. The take-over epoch is committed, so nobody can name it any more."""
    found = orphans(storage, referenced, term)
    for start in range(0, len(found), 100):
        if storage.exists(paths.manifest(Epoch(head + 1))):
            return
        storage.delete(found[start : start + 100])
    for committer in committers.values():
        sweep = getattr(committer, "sweep", None)
        if callable(sweep):
            sweep()


def processing_time(now_ms: Milliseconds, head: Manifest | None) -> Milliseconds:
    """It never goes back, whatever the clocks of successive drivers show."""
    return max(now_ms, head.processing_time if head is not None else 0)

"""Becoming the driver of a job: what it resumes from, how its state is laid out for this program, the empty take-over epoch.

take a term → find the head → claim states and sources → lay them out → decide about going back → finish the last driver's commits
→ commit an empty epoch → sweep

Law: what is copied in from elsewhere is copied after the term was taken and the head was read, into names that carry the term. So
either this driver commits the epoch after that head, or another has, and then the copies belong to no manifest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypedDict

import msgspec

from penstock.compile.compatibility import Origin
from penstock.compile.compiler import Target, compile_program
from penstock.compile.layout import Claims
from penstock.compile.programs import record_program
from penstock.compile.renames import as_called_now, by_new_name, former_names
from penstock.config import Guarantee, JobConfig
from penstock.connectors.protocol import Committer, Confirms, Sweeps
from penstock.epochs.committing.commit_protocol import commit_sinks, mark_done
from penstock.epochs.committing.intents import read_intent
from penstock.epochs.committing.retention import orphans
from penstock.epochs.setup import Setup
from penstock.epochs.starting.draining import check_not_drained
from penstock.epochs.starting.migration import Times, migrate_states
from penstock.epochs.starting.output_replacement import begun, finish_repair
from penstock.epochs.starting.reopening import reopened
from penstock.epochs.starting.rewind import turn_back
from penstock.epochs.starting.uniting import unite_states
from penstock.errors import CorruptFileError
from penstock.failpoints import fail_point
from penstock.ids import Epoch, JobId, Milliseconds, StepId, Term
from penstock.jobs import paths
from penstock.jobs.left_out import LeftOut
from penstock.jobs.manifest import Manifest, Restored, Rewind, SourceState, StateLayout, load_manifest, version_of
from penstock.jobs.terms import Head, JobInfo, check_same_job, fenced, find_head, open_job
from penstock.jobs.wholeness import state_files, with_way_out
from penstock.plan.nodes import Graph
from penstock.runtime.job import CompiledJob
from penstock.state.key_groups import NEW_JOBS, KeyGroups, check_parallelism, default_max_parallelism
from penstock.state.stores.store_registry import check_installed
from penstock.storage import Storage
from penstock.timing.durations import to_ms

log = logging.getLogger("penstock")

STALE_WRITERS = timedelta(hours=1)
"""What a writer left half-written and has not touched for this long, it will not finish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a job is to resume from instead of its own newest epoch.

    `bring` copies the files of a layout into the job's storage, if they are not there, and gives the layout with the copies;
    `release` is called once the take-over epoch names them.
    """

    before: Manifest
    restored: Restored
    bring: Callable[[StateLayout, Term], StateLayout] = lambda layout, term: layout
    release: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A job, taken over: `head` is what was found, `before` what is resumed from, `elsewhere` if that is not the head."""

    info: JobInfo
    term: Term
    head: Head
    before: Manifest | None
    restored: Restored | None
    graph: Graph
    """As it runs."""
    layout: StateLayout
    job: CompiledJob
    sources: dict[str, SourceState]
    states: Claims
    elsewhere: bool = False
    program: str = ""
    """Its hash."""
    checked: frozenset[str] = frozenset()
    """State files that this start has copied, and read back whole."""


def take_over(setup: Setup, start: Start | None, take: Callable[[Storage, int], Term]) -> Taken:
    """Take a term, and compile the program on what is committed. Nothing is committed yet."""
    config, storage, program = setup.config, setup.storage, setup.program
    check_installed(config.state_store)
    if start is None:
        check_not_drained(storage)
    most = start.before.state.max_parallelism if start is not None else default_max_parallelism(config.parallelism)
    info = open_job(storage, config.name, config.max_parallelism, otherwise=most)
    check_parallelism(config.parallelism, info.max_parallelism)
    term = take(storage, 0)
    try:
        head = find_head(storage, fall_back=config.fall_back, whole=info.job if start is None else None)
    except CorruptFileError as error:
        raise error if config.fall_back else with_way_out(storage, info.job, error, setup.invocation) from None
    check_same_job(storage, info, head.manifest)
    if head.manifest is not None and head.manifest.term >= term:
        if head.manifest.term > term and storage.exists(paths.term(head.manifest.term)):
            raise fenced(head.manifest.epoch)  # who took a term after this one has committed already
        term = take(storage, head.manifest.term)  # the files of terms are gone
    before = head.manifest if start is None else start.before
    key_groups = KeyGroups(info.max_parallelism, before.state.key_hash if before else NEW_JOBS)
    compiled = compile_program(
        setup.graph,
        before.state if before else None,
        before.sources if before else {},
        target_of(config, storage, info, key_groups, term, setup.python_paths),
        allow_dropped=config.allow_dropped_state,
        newest=head.manifest.state if head.manifest else None,
        origin=Origin(source=start.restored.source if start else storage.uri, foreign=False, trusted=config.trust),
    )
    graph, states, claims, layout = compiled.graph, compiled.states, compiled.sources, compiled.layout
    head = replace(head, renamed=former_names(graph))
    if before is not None:
        before = as_called_now(before, graph)
    if before is not None and before.finished and claims.added:
        log.warning("the finished job continues: the program has another source: %s", ", ".join(claims.added))
        before = reopened(before, ask_again=False)
    if start is None and key_groups.hash != NEW_JOBS:
        log.info("the job keeps its %s", key_groups)
    if claims.removed:
        log.warning("dropping the positions of sources that the program no longer has: %s", ", ".join(claims.removed))
    checked: frozenset[str] = frozenset()
    if start is not None:
        fail_point("restore:resolved")
        brought = start.bring(layout, term)
        checked = _names(brought) - _names(layout)
        layout = brought
        fail_point("restore:copied")
    restored = before.restored if before is not None else None
    if start is not None:
        restored = start.restored
    if program is not None:
        record_program(storage, program)
    return Taken(
        info=info,
        term=term,
        head=head,
        before=before,
        restored=restored,
        graph=graph,
        layout=layout,
        job=compiled.job,
        sources=claims.kept,
        states=states,
        elsewhere=start is not None,
        program=program.hash if program is not None else "",
        checked=checked,
    )


def target_of(
    config: JobConfig, storage: Storage, info: JobInfo, key_groups: KeyGroups, term: Term, python_paths: tuple[str, ...]
) -> Target:
    """Where the program of a job is to run."""
    return Target(
        name=config.name,
        job=info.job,
        storage=storage,
        parallelism=config.parallelism,
        key_groups=key_groups,
        term=term,
        local_dir=config.local_dir,
        keep_local_ms=to_ms(config.keep_local),
        state_store=config.state_store,
        paths=python_paths,
    )


def _names(layout: StateLayout) -> frozenset[str]:
    return frozenset(ref.name for ref in state_files(layout))


def next_epoch(head: Head) -> Epoch:
    """The take-over epoch: above every manifest found, readable or not."""
    return Epoch(max(head.epochs, default=0) + 1)


def finish_commits(
    storage: Storage, head: Head, committers: Mapping[StepId, Committer], *, guarantee: Guarantee, back: Rewind | None = None
) -> None:
    """Commit the sinks of epochs that were committed but not marked done.

    Only ancestors of the epoch that we resume from (the head, or the epoch gone back to): a stale driver may have left a manifest
    outside them.
    """
    for manifest in _unfinished(storage, head, back):
        turn_back(committers, manifest, guarantee)
        if guarantee != "at-most-once":  # a manifest of a time of at-least-once has nothing to commit
            commit_sinks(committers, by_new_name(manifest.committables, head.renamed), manifest.epoch)
        finish_repair(committers, manifest, guarantee)
        mark_done(storage, manifest.epoch)


def _unfinished(storage: Storage, head: Head, back: Rewind | None) -> list[Manifest]:
    """Epochs without a done mark that led to the one we resume from, oldest first."""
    found: list[Manifest] = []
    manifest = head.manifest
    if back is not None:
        manifest = load_manifest(storage, back.to) if back.to in head.epochs else None
    while manifest is not None:
        if manifest.epoch in head.undone:
            found.append(manifest)
        parent = manifest.parent
        further = parent in head.epochs and any(epoch <= parent for epoch in head.undone) if parent is not None else False
        manifest = load_manifest(storage, parent) if parent is not None and further else None
    return found[::-1]


def unpublished_input(storage: Storage, head: Head) -> dict[str, LeftOut]:
    """At most once: what committed epochs have read, by source, whose output may not have been published, and will not be now.

    So much may be lost: it is an estimate."""
    found: dict[str, LeftOut] = {}
    for manifest in _unfinished(storage, head, None):
        for step in manifest.read if manifest.committables else ():
            records = manifest.metrics[step].records_in if step in manifest.metrics else 0
            found[step] = found.get(step, LeftOut()).plus(LeftOut(shed=records, estimated=records > 0))
    return found


def confirm_output(storage: Storage, head: Head, committers: Mapping[StepId, Committer]) -> None:
    """Have the sinks that can make sure that the output of the newest epoch that had some is still published."""
    sinks = {step: committer for step, committer in committers.items() if isinstance(committer, Confirms)}
    manifest = head.manifest
    while manifest is not None and sinks:
        for step, items in manifest.committables.items():
            committer = sinks.pop(StepId(step), None)
            if committer is not None:
                committer.confirm(manifest.epoch, list(items))
        try:
            parent = manifest.parent if manifest.back is None else None
            manifest = load_manifest(storage, parent) if parent is not None and parent in head.epochs else None
        except CorruptFileError as error:
            log.warning("an older epoch cannot be read, nor its output confirmed: %s", error)
            return


def take_over_manifest(
    taken: Taken, config: JobConfig, storage: Storage, now_ms: Milliseconds, back: Rewind | None = None
) -> Manifest:
    """The empty epoch with which this driver begins. The driver before fails to commit from then on.

    Its number is above all that were ever used, by this storage or by a sink."""
    before = taken.before
    epoch = next_epoch(taken.head) if back is None else Epoch(back.beyond + 1)
    sources = dict(taken.sources)
    if config.guarantee == "at-most-once" and not taken.elsewhere and back is None:
        sources = {**sources, **by_new_name(read_intent(storage, taken.info.job, Epoch(epoch - 1)), taken.head.renamed)}
        unpublished = by_new_name(unpublished_input(storage, taken.head), taken.head.renamed)
        sources = {step: state.without(unpublished.get(step, LeftOut())) for step, state in sources.items()}
    now = processing_time(now_ms, before)
    watermarks = before.watermarks if before else {}
    mark: _Mark = {"job": taken.info.job, "term": taken.term, "epoch": epoch}
    layout = unite_states(storage, taken.layout, before.state if before else None, taken.graph, taken.states.ids, **mark)
    layout = migrate_states(storage, layout, taken.states, Times(processing_time=now, watermarks=watermarks), **mark)
    restored = taken.restored
    if restored is not None and taken.elsewhere:
        restored = msgspec.structs.replace(restored, at=epoch)
    return Manifest(
        version=version_of(layout, sources),
        job=taken.info.job,
        epoch=epoch,
        term=taken.term,
        plan=1,
        parent=before.epoch if before is not None and before.job == taken.info.job else None,
        processing_time=now,
        created_ms=now_ms,
        sources=sources,
        watermarks=watermarks,
        state=layout,
        finished=before.finished if before else False,
        program=taken.program,
        restored=restored,
        back=back,
        repair=begun(back, epoch, before, taken.head),
        drained=before.drained if before else None,
        left_out=before.left_out if before else LeftOut(),
        tables=by_new_name(before.tables, taken.head.renamed) if before and before.job == taken.info.job else {},
    )


class _Mark(TypedDict):
    """Who writes files before a take-over epoch."""

    job: JobId
    term: Term
    epoch: Epoch


def claim_of(taken: Taken, manifest: Manifest) -> Manifest | None:
    """What is committed before a take-over epoch whose number is not the next one, because sinks know of more epochs than the
    storage: the epoch after the head, so that of several drivers only one continues from there. Pure.

    Its number may have been used by the line that was lost: a start that finds it as the head goes back as this one does.
    """
    following = next_epoch(taken.head)
    if manifest.epoch == following:
        return None
    return msgspec.structs.replace(
        manifest, epoch=following, restored=taken.before.restored if taken.before else None, repair=None
    )


def sweep_orphans(
    storage: Storage, referenced: set[str], term: Term, head: Epoch, committers: Mapping[StepId, Committer]
) -> None:
    """Remove what failed attempts of older terms left. The take-over epoch is committed, so nothing can name it any longer."""
    found = orphans(storage, referenced, term)
    for start in range(0, len(found), 100):
        if storage.exists(paths.manifest(Epoch(head + 1))):
            return
        storage.delete(found[start : start + 100])
    storage.child(paths.STATE).sweep_temporary(STALE_WRITERS)
    for committer in committers.values():
        if isinstance(committer, Sweeps):
            committer.sweep()


def processing_time(now_ms: Milliseconds, head: Manifest | None) -> Milliseconds:
    """It never goes back, whatever the clocks of successive drivers show."""
    return max(now_ms, head.processing_time if head is not None else 0)

"""The take-over, step by step: from a program and a storage to a job that this process drives.

    take a term, compile → open sources and sinks → look back → open the state → finish the last driver's commits
    → commit the take-over epoch → clear up what the driver before left

Law: an attempt that fails before its epoch is committed has changed nothing that counts. What it opened is closed, and the next
one takes a term of its own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from penstock.config import JobConfig
from penstock.deadlines import OpenEnds
from penstock.epochs.availability.lease_holder import SignOfLife
from penstock.epochs.availability.mirror import mirror_of
from penstock.epochs.availability.mirror_start import mark_started
from penstock.epochs.committing.commit_protocol import write_manifest
from penstock.epochs.committing.compaction_runner import CompactionRunner
from penstock.epochs.committing.group_commit import GroupCommit
from penstock.epochs.committing.orphans import OrphanSweep
from penstock.epochs.committing.persisting import Persistence
from penstock.epochs.committing.pipeline import Pipeline
from penstock.epochs.committing.retention import Retention
from penstock.epochs.driven import Driven
from penstock.epochs.history import JobResult
from penstock.epochs.planning.admission import Admission
from penstock.epochs.planning.checkpoints import Checkpoints
from penstock.epochs.planning.epoch_planner import EpochPlanner
from penstock.epochs.planning.tables import TableKeeper
from penstock.epochs.setup import Setup
from penstock.epochs.starting.endpoints import describe_sinks, open_committers, open_sources
from penstock.epochs.starting.local_state import LocalState
from penstock.epochs.starting.opening import StateOpening
from penstock.epochs.starting.output_replacement import describe
from penstock.epochs.starting.rewind import look_back
from penstock.epochs.starting.takeover import (
    Start,
    Taken,
    claim_of,
    confirm_output,
    finish_commits,
    sweep_orphans,
    take_over,
    take_over_manifest,
)
from penstock.errors import FencedError
from penstock.failpoints import fail_point
from penstock.ids import Epoch, Term
from penstock.jobs.left_out import LeftOut
from penstock.jobs.manifest import Manifest, Rewind
from penstock.jobs.mirror_record import passed_over, read_mirror
from penstock.jobs.requests import Inbox
from penstock.jobs.terms import find_head
from penstock.timing.durations import to_ms

log = logging.getLogger("penstock")

AHEAD = 8
"""How many epochs run ahead of the last committed one on Spark, unless told otherwise."""

TAKE_OVERS = 20
"""How often a new driver tries to commit its first epoch while the one before still commits."""


@dataclass(slots=True, kw_only=True)
class TakeOverSequence:
    """Takes a job over. What it opens is added to `ends`."""

    setup: Setup
    start: Start | None
    life: SignOfLife
    local: LocalState
    persistence: Persistence
    ends: OpenEnds
    _opening: StateOpening = field(init=False)
    _term: Term = field(init=False)
    """0: none is taken yet."""
    _lost: Epoch = field(init=False)
    """Up to this epoch, a mirror has lost some."""
    _started: bool = False
    """Is the executor started?"""

    def __post_init__(self) -> None:
        self._opening, self._term, self._lost = StateOpening(self.setup), Term(0), Epoch(0)

    def take_over(self) -> Driven:
        """Become the driver. One that still drives may commit an epoch meanwhile: then the job continues from that one."""
        storage, persist = self.setup.storage, self.persistence
        for further in reversed(range(TAKE_OVERS)):
            try:
                return persist(self._attempt, failed=self.ends.close)
            except FencedError:
                newest = persist(lambda: find_head(storage, fall_back=True)).manifest
                if newest is None or newest.term >= self._term or not further or self.life.gives_way:
                    raise
                log.info("epoch %d was committed by the driver that is to be replaced", newest.epoch)
                self.ends.close()
        raise AssertionError

    def finish(self, driven: Driven) -> None:
        """The take-over epoch is committed: sweep what the driver before left, and have the executor started."""
        self.persistence(lambda: self._clear_up(driven))
        if not self._started:
            self.setup.executor.start(driven.job)

    def _clear_up(self, driven: Driven) -> None:
        """May be repeated."""
        storage = self.setup.storage
        if self._lost:
            mark_started(storage)
        if self.start is not None:
            self.start.release()
        fail_point("recovery:taken-over")
        Inbox(storage).drop_old()
        sweep_orphans(storage, driven.retention.referenced(), driven.term, driven.head.epoch, driven.committers)

    def _attempt(self) -> Driven:
        """As a whole, with a term of its own."""
        setup, config, storage = self.setup, self.setup.config, self.setup.storage
        taken = take_over(setup, self.start, self.life.take_term)
        self._term = taken.term
        self.local.hold(taken.job)
        result = JobResult(name=config.name, job=taken.info.job, storage=storage.uri)
        result.left_out = taken.before.left_out_in_all if taken.before is not None else LeftOut()
        sources = open_sources(taken.graph, config, storage, taken.job, setup.executor)
        for source in sources:
            self.ends.add(f"the source {source.step}", source.close)
        committers = open_committers(taken.graph, storage, taken.job, taken.term)
        for step, committer in committers.items():
            self.ends.add(f"the sink {step}", committer.close)
        self._lost = passed_over(read_mirror(storage), taken.head)
        names = describe_sinks(taken.graph)
        back = look_back(
            storage, taken.head, taken.before, taken.info.job, config, committers, names, self._lost, setup.invocation
        )
        self._started = self._opening.open(taken)
        fail_point("recovery:before-commit")
        finish_commits(storage, taken.head, committers, guarantee=config.guarantee, back=back)
        if config.guarantee == "exactly-once" and back is None:
            confirm_output(storage, taken.head, committers)
        fail_point("recovery:committed")
        compactor = CompactionRunner(storage, taken.job, taken.term, config.compact_after, beside=config.executor != "inline")
        self.ends.add("the compaction", compactor.close)
        orphans = OrphanSweep(storage, taken.term)
        retention = Retention(storage, config.keep)
        retention.load(taken.head.epochs)
        mirror = mirror_of(storage, config.mirror, taken.info, taken.term, config.keep)
        if mirror is not None:
            self.ends.add("the mirror", mirror.close)
        commits = GroupCommit(
            setup=setup,
            committers=committers,
            sources=sources,
            retention=retention,
            compactor=compactor,
            orphans=orphans,
            result=result,
            mirror=mirror,
        )
        head = self._commit_epoch(taken, back, commits)
        result.count(head.left_out_in_all)
        result.finished = head.finished
        depth = _depth(config)
        admission = _admission(config)
        checkpoints = Checkpoints(interval_ms=to_ms(config.checkpoint_interval), ahead=depth > 0)
        checkpoints.made(head.processing_time)
        planner = EpochPlanner(
            config=config,
            job=taken.job,
            term=taken.term,
            sources=sources,
            admission=admission,
            checkpoints=checkpoints,
            tables=TableKeeper(taken.job, taken.term, setup.storage),
            plan_number=head.plan,
        )
        repairing = config.guarantee == "at-least-once" and head.repair is not None  # what it replaces is of a commit
        return Driven(
            job=taken.job,
            term=taken.term,
            head=head,
            result=result,
            sources=sources,
            committers=committers,
            planner=planner,
            admission=admission,
            checkpoints=checkpoints,
            pipeline=Pipeline(head, commits.commit, 0 if repairing else depth),
            commits=commits,
            retention=retention,
            orphans=orphans,
            mirror=mirror,
        )

    def _commit_epoch(self, taken: Taken, back: Rewind | None, commits: GroupCommit) -> Manifest:
        """From now on a driver of an older term cannot commit."""
        storage = self.setup.storage
        self.life.check_silent()
        manifest = take_over_manifest(taken, self.setup.config, storage, self.setup.clock.now_ms(), back)
        if (claim := claim_of(taken, manifest)) is not None:
            write_manifest(storage, claim)
            fail_point("rollback:claimed")
        write_manifest(storage, manifest)
        self.life.committed()
        self.persistence(lambda: commits.complete(manifest))
        if repair := describe(manifest.repair):
            log.warning("%s", repair)
        return manifest


def _depth(config: JobConfig) -> int:
    """How many epochs may wait for their commit. At most once notes its input before an epoch: there is one at a time."""
    if config.guarantee == "at-most-once":
        return 0
    if config.pipeline is not None:
        return config.pipeline
    return AHEAD if config.executor != "inline" else 0


def _admission(config: JobConfig) -> Admission:
    return Admission(
        target_ms=to_ms(config.target_epoch),
        max_records=config.max_records_per_epoch,
        max_bytes=config.max_bytes_per_epoch,
        readers=config.parallelism,
        first=config.first_records_per_epoch,
    )

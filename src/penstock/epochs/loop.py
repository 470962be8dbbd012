"""The epoch loop: plain Python on the driver, the same over every executor.

    take over → (plan → run → hand over to be committed)* → finished, stopped, or failed for good

Commits happen beside the epochs (see `penstock.epochs.committing.pipeline`): the next epoch goes on from what the last one left,
committed or not. An epoch that fails before its manifest has had no effect: it is simply planned anew, with a new plan number.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.compile.programs import Program
from penstock.config import JobConfig
from penstock.connectors.protocol import Committer
from penstock.deadlines import Closing
from penstock.epochs.availability.lease_holder import SignOfLife
from penstock.epochs.availability.mirror import Mirror, mirror_of
from penstock.epochs.availability.mirror_start import mark_started
from penstock.epochs.clock import Clock
from penstock.epochs.committing.commit_protocol import commit_sinks, write_manifest
from penstock.epochs.committing.compaction_runner import CompactionRunner
from penstock.epochs.committing.group_commit import GroupCommit
from penstock.epochs.committing.intents import read_intent, write_intent
from penstock.epochs.committing.orphans import OrphanSweep
from penstock.epochs.committing.persisting import persist
from penstock.epochs.committing.pipeline import Pipeline, RanEpoch
from penstock.epochs.committing.retention import Retention
from penstock.epochs.executor import Abandons, Executor
from penstock.epochs.history import JobResult, Listener, record_of
from penstock.epochs.planning.admission import Admission
from penstock.epochs.planning.checkpoints import Checkpoints
from penstock.epochs.planning.epoch_planner import Decision, EpochPlanner
from penstock.epochs.planning.inputs import SourceInput
from penstock.epochs.planning.next_manifest import manifest_after, manifest_without
from penstock.epochs.planning.report_check import check_reports
from penstock.epochs.planning.report_merge import committables_of, files_of
from penstock.epochs.planning.restarting import GiveUp, Seen, after_failures, seen
from penstock.epochs.starting.endpoints import describe_sinks, open_committers, open_sources
from penstock.epochs.starting.local_state import LocalState
from penstock.epochs.starting.opening import StateOpening
from penstock.epochs.starting.output_replacement import describe
from penstock.epochs.starting.rescaling import Rescale
from penstock.epochs.starting.rewind import look_back, publication_of
from penstock.epochs.starting.takeover import (
    Start,
    Taken,
    claim_of,
    confirm_output,
    finish_commits,
    processing_time,
    sweep_orphans,
    take_over,
    take_over_manifest,
)
from penstock.epochs.stop_requests import StopRequests
from penstock.errors import (
    CorruptFileError,
    DeltaTooLargeError,
    EpochFailedError,
    ExecutorLostError,
    FencedError,
    LayersLostError,
    PenstockError,
    SinkRefusedError,
    StorageError,
)
from penstock.failpoints import fail_point
from penstock.ids import MAX_WATERMARK, Epoch, Milliseconds, StepId, Term
from penstock.jobs.left_out import LeftOut
from penstock.jobs.manifest import Manifest, Rewind
from penstock.jobs.mirror_record import passed_over, read_mirror
from penstock.jobs.requests import Inbox
from penstock.jobs.terms import fenced, find_head
from penstock.jobs.wholeness import is_damaged, state_files, with_way_out
from penstock.plan.nodes import Graph
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import TaskReport
from penstock.storage import Storage
from penstock.timing.durations import to_ms

log = logging.getLogger("penstock")

T = TypeVar("T")

IDLE_POLL_S = 0.01
KEEP_WARM_S = 20.0
AHEAD = 8
"""How many epochs run ahead of the last committed one on Spark, unless told otherwise."""

TAKE_OVERS = 20
"""How often a new driver tries to commit its first epoch while an old one goes on committing."""

CAREFUL = 20
"""So many epochs wait for the commit of the one before, after layers were not where a task ran."""


class EpochLoop:
    """Runs one job, in one process, until it is finished, stopped, fenced or failed."""

    def __init__(
        self,
        *,
        graph: Graph,
        config: JobConfig,
        storage: Storage,
        executor: Executor,
        clock: Clock | None = None,
        listeners: tuple[Listener, ...] = (),
        python_paths: tuple[str, ...] = (),
        start: Start | None = None,
        rescale: Rescale | None = None,
        life: SignOfLife | None = None,
        program: Program | None = None,
    ) -> None:
        self._graph = graph
        self._config = config
        self._storage = storage
        self._executor = executor
        self._clock = clock or Clock()
        self._listeners = listeners
        self._python_paths = python_paths
        self._start = start
        self._life = life or SignOfLife(storage, config)
        self._rescaling = rescale
        """The request that this loop was started for."""
        self._program = program
        self._failures: list[Seen] = []
        """In a row: since the last epoch that ran, or the job was idle."""
        self._unmade: Epoch | None = None
        """The head when a commit on top of it failed: until one succeeds, that failure counts."""
        self._repeated = 0
        """How often steps outside of the epochs were tried again."""
        self._at_once = False
        """Stopped in the middle of something: nothing is waited for."""
        self._overdue = ""
        """Why what runs is not waited for, though the job was to stop after it."""
        self._came_round = 0.0
        self._inbox = Inbox(storage)
        self._endings = StopRequests(self._inbox, self._clock, drain=config.drain)
        self._retention = Retention(storage, config.keep)
        self._admission = Admission(
            target_ms=to_ms(config.target_epoch),
            max_records=config.max_records_per_epoch,
            max_bytes=config.max_bytes_per_epoch,
            readers=config.parallelism,
            first=config.first_records_per_epoch,
        )
        self._depth = _depth(config)
        self._checkpoints = Checkpoints(interval_ms=to_ms(config.checkpoint_interval), ahead=self._depth > 0)
        self._careful = 0
        self._tried: list[RanEpoch] = []
        """Epochs whose commit failed, until it is known whether they are committed."""
        self._warned: set[str] = set()
        """Steps whose warning has been passed on."""
        self._mirror: Mirror | None = None
        self._local = LocalState(config, executor)
        self._opening = StateOpening(storage, executor, fall_back=config.fall_back)
        self._warmed = time.monotonic()
        self.result: JobResult
        self._head: Manifest
        """The newest epoch that has run, committed or not."""
        self._job: CompiledJob
        self._decider: EpochPlanner
        self._compactor: CompactionRunner
        self._orphans: OrphanSweep
        self._publishing: GroupCommit
        self._pipeline: Pipeline
        self._term = Term(0)
        """None is taken yet."""
        self._back: Rewind | None = None
        self._sources: list[SourceInput] = []
        self._committers: dict[StepId, Committer] = {}

    def request_stop(self) -> None:
        """Stop after the current epoch. Safe from a signal handler or another thread."""
        self._endings.handed_over = True

    def _told_to_stop(self) -> bool:
        return self._endings.handed_over

    def look_ahead(self) -> bool:
        """Does a request tell the job to stop? For when the loop is held up. Safe from another thread."""
        return self._endings.look_ahead()

    @property
    def held_up_s(self) -> float:
        """For how long the loop has not come round; 0 before it is ready."""
        return time.monotonic() - self._came_round if self._came_round else 0.0

    def give_up(self, because: str) -> None:
        """Stop without waiting for anything any more. Safe from another thread; whoever ran the epoch has to be interrupted."""
        self._overdue = because
        if hasattr(self, "_pipeline"):
            self._pipeline.give_up(EpochFailedError(because))

    def run(self) -> JobResult:
        """Run the job to its end."""
        try:
            self._take_over()
            self.result.finished = self._head.finished
            while not self._attempt(self._step):
                pass
            self._see_through(lambda: self._endings.settle(self._pipeline.head), "the request to stop was not answered")
            self.result.last_epoch = self._pipeline.head.epoch
            self.result.stopped |= self._endings.stopped
            self.result.drained = self._pipeline.head.drained is not None
            self.result.rescale = self._endings.rescale
            if self._endings.rescale is not None:
                fail_point("rescale:stopped")
            else:
                if self._mirror is not None:
                    self._mirror.finish()
                self._life.release("finished" if self._head.finished else self._endings.named)
            return self.result
        except FencedError:
            raise
        except Exception as error:
            if self._overdue and hasattr(self, "_pipeline") and not isinstance(error, SinkRefusedError):
                return self._leave_off(error)
            self._life.release("failed")
            raise
        except (KeyboardInterrupt, SystemExit):
            self._at_once = True
            raise
        finally:
            self._life.close()
            self._close()

    def _leave_off(self, error: Exception) -> JobResult:
        """The last committed epoch is the end."""
        head = self._pipeline.head
        log.warning("nothing is committed after epoch %d: %s", head.epoch, self._overdue)
        log.debug("what ended the wait: %s", error)
        self.result.last_epoch, self.result.stopped = head.epoch, True
        self._endings.settle(head, self._overdue)
        self._life.release(self._endings.named)
        return self.result

    # --- starting ----------------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Become the driver. One that still drives may commit an epoch meanwhile: then it is gone on from that one."""
        for attempt in range(TAKE_OVERS):
            try:
                lost, started = self._persist(self._try_take_over, failed=lambda: self._close_ends(self._closing()))
                break
            except FencedError:
                newest = self._persist(lambda: find_head(self._storage, fall_back=True)).manifest
                if newest is None or newest.term >= self._term or attempt == TAKE_OVERS - 1 or self._life.gives_way:
                    raise
                log.info("epoch %d was committed by the driver that is to be replaced", newest.epoch)
                self._close_ends(self._closing())
        self._begin(lost, started)

    def _try_take_over(self) -> tuple[Epoch, bool]:
        """Finish what the last driver committed, lay state out, commit an empty epoch: as a whole, with a term of its own.

        Up to which epoch a mirror has lost some; whether the executor is started."""
        config, storage = self._config, self._storage
        taken = take_over(self._graph, config, storage, self._start, self._python_paths, self._program, self._life.take_term)
        self._job, self._term = taken.job, taken.term
        self._local.hold(taken.job)
        self.result = JobResult(name=config.name, job=taken.info.job, storage=storage.uri, restarts=self._repeated)
        self.result.left_out = taken.before.left_out_in_all if taken.before is not None else LeftOut()
        self._sources = open_sources(taken.graph, config, storage, self._job, self._executor)
        self._committers = open_committers(taken.graph, storage, self._job, taken.term)
        named = describe_sinks(taken.graph)
        lost = passed_over(read_mirror(storage), taken.head)
        self._back = look_back(storage, taken.head, taken.before, taken.info.job, config, self._committers, named, lost)
        started = self._opening.open(taken)
        fail_point("recovery:before-commit")
        finish_commits(storage, taken.head, self._committers, guarantee=config.guarantee, back=self._back)
        if config.guarantee == "exactly-once" and self._back is None:
            confirm_output(storage, taken.head, self._committers)
        fail_point("recovery:committed")
        self._compactor = CompactionRunner(
            storage, self._job, self._term, config.compact_after, beside=config.executor != "inline"
        )
        self._orphans = OrphanSweep(storage, self._term)
        self._retention = Retention(storage, config.keep)
        self._retention.load(taken.head.epochs)
        self._mirror = mirror_of(storage, config.mirror, taken.info, taken.term, config.keep)
        self._publishing = GroupCommit(
            config=config,
            storage=storage,
            committers=self._committers,
            sources=self._sources,
            retention=self._retention,
            compactor=self._compactor,
            orphans=self._orphans,
            result=self.result,
            listeners=self._listeners,
            now_ms=self._clock.now_ms,
            sleep=self._clock.sleep,
            mirror=self._mirror,
        )
        self._commit_take_over(taken)
        return lost, started

    def _begin(self, lost: Epoch, started: bool) -> None:
        """The take-over is committed: what there is to do before the first epoch."""
        config = self._config
        self._decider = EpochPlanner(
            config=config,
            job=self._job,
            term=self._term,
            sources=self._sources,
            admission=self._admission,
            checkpoints=self._checkpoints,
            plan_number=self._head.plan,
        )
        repairing = config.guarantee == "at-least-once" and self._head.repair is not None  # what it replaces is of a commit
        self._pipeline = Pipeline(self._head, self._publishing.commit, 0 if repairing else self._depth)
        self._checkpoints.made(self._head.processing_time)
        self._persist(lambda: self._clear_up(lost))
        if not started:
            self._executor.start(self._job)
        self._life.ready()
        if self._rescaling is not None:
            fail_point("rescale:taken-over")
            message, result = self._rescaling.told(self._clock.now_ms())
            log.info("%s", message)
            answer = partial(self._inbox.answer, self._rescaling.request, True, message, **result)
            self._see_through(answer, "the request to rescale was not answered")

    def _clear_up(self, lost: Epoch) -> None:
        """What the take-over leaves behind. May be repeated."""
        if lost:
            mark_started(self._storage)
        if self._start is not None:
            self._start.release()
        fail_point("recovery:taken-over")
        self._inbox.drop_old()
        sweep_orphans(self._storage, self._retention.referenced(), self._term, self._head.epoch, self._committers)

    def _commit_take_over(self, taken: Taken) -> None:
        self._life.check_silent()
        manifest = take_over_manifest(taken, self._config, self._storage, self._clock.now_ms(), self._back)
        if (claim := claim_of(taken, manifest)) is not None:
            write_manifest(self._storage, claim)
            fail_point("rollback:claimed")
        write_manifest(self._storage, manifest)
        self._life.committed()
        self._persist(lambda: self._publishing.complete(manifest))
        self._head = manifest
        self.result.count(manifest.left_out_in_all)
        if told := describe(manifest.repair):
            log.warning("%s", told)

    # --- one turn ----------------------------------------------------------------------------------------------------------

    def _attempt(self, step: Callable[[], bool]) -> bool:
        """Take a step, and recover if it fails: whatever it is about, the restart policy decides. False: there are more."""
        try:
            return step()
        except (FencedError, SinkRefusedError):
            raise
        except DeltaTooLargeError:
            self._checkpoints.wanted = True
        except LayersLostError as error:
            log.info("%s", error.what)
            self._careful = CAREFUL
            self._recover(error, free=True)
        except CorruptFileError as error:
            self._give_up_if_damaged(error)
            self._recover(error)
        except PenstockError as error:
            self._recover(error)
        return False

    def _step(self) -> bool:
        """Look whether the job is to end; if not, take a turn. True: this is the end, and all that has run is committed."""
        if not self._head.finished and not self._endings.look(self._job, self._head):
            self._turn()
            return False
        if not self._settle():
            return False
        if self._head.finished or not self._endings.draining:
            return True
        self._turn(drain=True)
        return False

    def _turn(self, *, checkpoint: bool = False, drain: bool = False) -> None:
        """Run an epoch if there is a reason to, otherwise wait. `checkpoint`: to make what has run durable is a reason.
        `drain`: to end all time is one."""
        self._life.touch()
        self._came_round = time.monotonic()
        self._pipeline.check()
        if self._careful:
            self._pipeline.drain()
        self._checkpoints.wanted |= checkpoint or self._careful > 0
        committed, waiting = self._pipeline.look()
        now = processing_time(self._clock.now_ms(), self._head)
        decision = self._decider.decide(self._head, committed, waiting, now, drain=drain)
        if isinstance(decision, Decision):
            self._run_epoch(decision)
            self._forgive()
        elif self._config.until_idle and self._decider.idle():
            self._endings.idle = True
        else:
            self._wait(decision.wake_ms)
            if not waiting:
                self._forgive()

    def _settle(self) -> bool:
        """Have all that has run committed; False if there is more to do."""
        _, waiting = self._pipeline.look()
        if waiting and not waiting[-1].durable:
            self._turn(checkpoint=True)
            return False
        self._pipeline.drain()
        return True

    def _run_epoch(self, decision: Decision) -> None:
        started = time.perf_counter()
        order, durability = decision.order, decision.durability
        if self._config.guarantee == "at-most-once" and decision.drained is None:  # which reads nothing, and may be tried again
            write_intent(self._storage, self._job.job, order.epoch, self._term, decision.sources, order.sources)
        self._retention.in_use = order.head
        reports: list[TaskReport] = []
        try:
            reports = self._executor.run(order)
            short = [report.short for report in reports if report.short is not None]
            if short:
                self._decider.fell_short(decision, min(short))
                self._abort(order.epoch, reports)
                return
            self._warn(reports)
            fail_point("epoch:ran")
            check_reports(self._job, reports)
        except PenstockError:
            self._abort(order.epoch, reports)
            raise
        if self._config.guarantee == "at-least-once":
            commit_sinks(self._committers, committables_of(reports), publication_of(order))
        manifest = manifest_after(self._head, decision, reports, self._config, self._clock.now_ms())
        record = record_of(
            manifest,
            reports,
            sources={source.step for source in self._sources},
            sinks=set(self._committers),
            started_ms=decision.started_ms,
            run_seconds=time.perf_counter() - started,
        )
        ran = RanEpoch(
            manifest=manifest,
            files=files_of(reports),
            contents={report.state.name: report.delta for report in reports if report.state is not None and report.delta},
            reports=reports,
            record=record,
            started=started,
            final=decision.final,
            durable=durability.durable,
            flush=durability.flush,
        )
        self._head = manifest
        self._decider.ran(decision, reports)
        if durability.durable:
            self._checkpoints.made(decision.started_ms)
        self._pipeline.submit(ran)
        if durability.deltas == "reported" and len(ran.contents) < len(ran.files):
            self._pipeline.drain()  # what is too large for a report is too large for a layer
        self._careful = max(0, self._careful - 1)
        self._warmed = time.monotonic()
        took = time.perf_counter() - started
        self._admission.learn(record.records_in, took)
        pause = to_ms(self._config.epoch_interval) / 1000 - took
        if pause > 0:
            self._clock.pause(pause, self._told_to_stop)

    # --- trouble -----------------------------------------------------------------------------------------------------------

    def _recover(self, error: PenstockError, *, free: bool = False) -> None:
        """After a failed step: wait and try again, or give up with the reason. `free`: this failure does not count."""
        while True:
            if self._overdue:
                raise error
            if not free:
                self._wait_after(error)
            try:
                if isinstance(error, ExecutorLostError):
                    self._executor.restart()
                self._regroup(error)
                if self._config.guarantee == "at-most-once":
                    self._skip_failed()
                return
            except (FencedError, SinkRefusedError):
                raise
            except PenstockError as another:  # the storage, say, is not back yet
                error, free = another, False

    def _forgive(self) -> None:
        """An epoch has run, or there is nothing to do: what failed before no longer counts, unless it was a commit, and is yet to
        succeed."""
        if self._unmade is None or self._pipeline.head.epoch > self._unmade:
            self._failures, self._unmade = [], None

    def _persist(self, action: Callable[[], T], *, failed: Callable[[], None] = lambda: None) -> T:
        """Take a step outside of the epochs, which may be repeated, though the storage does not answer for a while."""

        def count() -> None:
            self._repeated += 1
            if hasattr(self, "result"):
                self.result.restarts += 1
            failed()

        return persist(action, self._config.restart, pause=self._pause, failed=count)

    def _see_through(self, action: Callable[[], None], otherwise: str) -> None:
        """The same, for a step whose failure changes nothing about the job."""
        try:
            self._persist(action)
        except StorageError as error:
            log.warning("%s: %s", otherwise, error)

    def _pause(self, seconds: float) -> None:
        """Wait before another attempt; not on, once told to stop meanwhile."""
        stopping = self._told_to_stop()
        self._clock.pause(seconds, lambda: self._told_to_stop() and not stopping)

    def _give_up_if_damaged(self, error: CorruptFileError) -> None:
        """A damaged file of state stays damaged; and the longer the job runs, the fewer whole epochs are kept."""
        head = self._pipeline.head
        try:
            damaged = is_damaged(self._storage, error.what, state_files(head.state))
            found = with_way_out(self._storage, head.job, error) if damaged else None
        except StorageError as another:
            log.warning("whether state is damaged cannot be seen now: %s", another.what)
            return
        if found is not None:
            raise found from error

    def _wait_after(self, error: PenstockError) -> None:
        self._failures.append(seen(error))
        self.result.restarts += 1
        self._orphans.failed()
        skips = self._config.guarantee == "at-most-once"
        verdict = after_failures(self._failures, self._config.restart, skips=skips)
        if isinstance(verdict, GiveUp):
            error.add_note(f"{verdict.because}; the last committed epoch is {self._pipeline.head.epoch}")
            raise error
        if verdict.repeated:
            log.warning("the same error again, trying again in %d ms: %s", verdict.delay_ms, error.what)
        else:
            log.warning("failure %d in a row, trying again in %d ms: %s", len(self._failures), verdict.delay_ms, error)
        self._pause(verdict.delay_ms / 1000)

    def _regroup(self, error: PenstockError) -> None:
        """After a failure: what can still be committed is, what was run on top of what cannot is given up."""
        failed = isinstance(error, LayersLostError)
        try:
            self._pipeline.drain()
        except (FencedError, SinkRefusedError):
            raise
        except PenstockError:
            failed = True
            self._unmade = self._pipeline.head.epoch
        _, waiting = self._pipeline.look()
        if failed and waiting:
            discarded = self._pipeline.discard()
            self._tried = discarded.tried
            for ran in discarded.untouched:
                self._abort(ran.manifest.epoch, ran.reports)
        committed = find_head(self._storage).manifest
        if committed is not None and committed.epoch > self._pipeline.head.epoch:
            # The outcome of creating the manifest was not known, and it was created after all.
            if committed.term != self._term:
                raise fenced(committed.epoch) from error
            self._publishing.complete(committed)
            if self._tried and self._tried[-1].manifest.plan == committed.plan:
                self._publishing.tell(committed, self._tried)
            self._pipeline.reset(committed)
            self.result.finished = committed.finished
        self._tried = []
        _, waiting = self._pipeline.look()
        self._head = waiting[-1].manifest if waiting else self._pipeline.head
        self._endings.idle = False

    def _skip_failed(self) -> None:
        """At most once: what the failed epoch was to read is not read again."""
        head = self._pipeline.head
        sources = read_intent(self._storage, head.job, head.epoch)
        if sources:
            skipped = manifest_without(head, sources, self._term, self._decider.new_plan_number(), self._clock.now_ms())
            self._publishing.publish(skipped)
            self.result.count(skipped.left_out_in_all)
            self._pipeline.reset(skipped)
            self._head = skipped

    def _warn(self, reports: list[TaskReport]) -> None:
        """Pass on what tasks have to say, once for each step."""
        for step, text in (item for report in reports for item in report.warnings.items()):
            if step not in self._warned:
                self._warned.add(step)
                log.warning("%s", text)

    def _abort(self, epoch: Epoch, reports: list[TaskReport]) -> None:
        """Let the sinks drop what was staged for an epoch that will not be."""
        for step, items in committables_of(reports).items():
            committer = self._committers.get(StepId(step))
            if committer is not None:
                try:
                    committer.abort(epoch, items)
                except Exception as error:
                    log.warning("the sink %s could not drop what epoch %d had staged: %s", step, epoch, error)

    # --- waiting and stopping ----------------------------------------------------------------------------------------------

    def _wait(self, wake_ms: Milliseconds | None) -> None:
        if not self._pipeline.look()[1]:
            self._retention.tidy()
        if time.monotonic() - self._warmed > KEEP_WARM_S:
            self._warmed = time.monotonic()
            self._executor.keep_warm()
        pause = IDLE_POLL_S
        if wake_ms is not None and wake_ms != MAX_WATERMARK:
            pause = max(0.001, min(0.25, (wake_ms - self._clock.now_ms()) / 1000))
        self._clock.sleep(pause)

    def _close_ends(self, closing: Closing) -> None:
        for source in self._sources:
            closing.end(f"the source {source.step}", source.close)
        for step, committer in self._committers.items():
            closing.end(f"the sink {step}", committer.close)
        self._sources, self._committers = [], {}
        if hasattr(self, "_compactor"):
            closing.end("the compaction", self._compactor.close)
        if self._mirror is not None:
            closing.end("the mirror", self._mirror.close)

    def _close(self) -> None:
        closing = self._closing()
        if hasattr(self, "_pipeline"):
            closing.end("the commit under way", lambda: self._pipeline.close(wait=not self._at_once))
            closing.end("the files being written", self._publishing.close)
        if self._at_once and isinstance(self._executor, Abandons):
            closing.end("the executor", self._executor.abandon)
            self._close_ends(closing)
            _quietly(self._local.leave)
            return
        self._close_ends(closing)
        if self._endings.rescale is None:
            self._local.ends(finished=hasattr(self, "result") and self.result.finished)
            _quietly(self._executor.close)  # which has a deadline of its own
        _quietly(self._local.leave)

    def _closing(self) -> Closing:
        return Closing(to_ms(self._config.stop_within) / 1000)


def _depth(config: JobConfig) -> int:
    """How many epochs may wait for their commit. At most once notes its input before an epoch: there is one at a time."""
    if config.guarantee == "at-most-once":
        return 0
    if config.pipeline is not None:
        return config.pipeline
    return AHEAD if config.executor != "inline" else 0


def _quietly(action: Callable[[], None]) -> None:
    try:
        action()
    except Exception as error:
        log.warning("while closing: %s", error)

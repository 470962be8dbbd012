"""The epoch loop: plain Python on the driver, the same over every executor.

    take over → (plan → run → hand over to be committed)* → finished, stopped, or failed for good

Commits happen beside the epochs (see `penstock.epochs.pipeline`): the next epoch goes on from what the last one left, committed
or not. An epoch that fails before its manifest has had no effect: it is simply planned anew, with a new plan number.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from penstock.config import JobConfig
from penstock.connectors.protocol import Committer
from penstock.epochs.admission import Admission
from penstock.epochs.agreement import check_agreement
from penstock.epochs.checkpoints import Checkpoints
from penstock.epochs.clock import Clock
from penstock.epochs.commit import commit_sinks, write_manifest
from penstock.epochs.compactor import Compactor
from penstock.epochs.control import Inbox
from penstock.epochs.deciding import Decider, Decision
from penstock.epochs.endings import Endings
from penstock.epochs.ends import describe_sinks, open_committers, open_sources
from penstock.epochs.executor import Executor
from penstock.epochs.fencing import fenced, find_head
from penstock.epochs.following import manifest_after, manifest_without
from penstock.epochs.going_back import look_back, publication_of
from penstock.epochs.history import JobResult, Listener, record_of
from penstock.epochs.inputs import SourceInput
from penstock.epochs.intents import read_intent, write_intent
from penstock.epochs.lease import SignOfLife
from penstock.epochs.mirroring import Mirror, mirror_of
from penstock.epochs.mirrors import mark_started, passed_over, read_mirror
from penstock.epochs.orphans import OrphanSweep
from penstock.epochs.pipeline import Pipeline, RanEpoch
from penstock.epochs.publishing import Publishing
from penstock.epochs.repairs import describe
from penstock.epochs.rescaling import Rescale
from penstock.epochs.results import committables_of, files_of
from penstock.epochs.retention import Retention
from penstock.epochs.takeover import (
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
from penstock.errors import (
    DeltaTooLargeError,
    ExecutorLostError,
    FencedError,
    LayersLostError,
    PenstockError,
    SinkRefusedError,
)
from penstock.failpoints import fail_point
from penstock.ids import MAX_WATERMARK, Epoch, Milliseconds, StepId, Term
from penstock.plan.nodes import Graph
from penstock.plan.rewrites import rewrite
from penstock.programs import Program
from penstock.runtime.job import CompiledJob
from penstock.runtime.manifest import Manifest, WentBack
from penstock.runtime.orders import TaskReport
from penstock.storage import Storage
from penstock.timing.durations import to_ms

log = logging.getLogger("penstock")

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
        self._graph = rewrite(graph)
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
        self._failures = 0
        self._inbox = Inbox(storage)
        self._endings = Endings(self._inbox, config, self._clock)
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
        self._mirror: Mirror | None = None
        self._warmed = time.monotonic()
        self.result: JobResult
        self._head: Manifest
        """The newest epoch that has run, committed or not."""
        self._job: CompiledJob
        self._decider: Decider
        self._compactor: Compactor
        self._orphans: OrphanSweep
        self._publishing: Publishing
        self._pipeline: Pipeline
        self._term = Term(0)
        """None is taken yet."""
        self._back: WentBack | None = None
        self._sources: list[SourceInput] = []
        self._committers: dict[StepId, Committer] = {}

    def request_stop(self) -> None:
        """Stop after the current epoch. Safe from a signal handler or another thread."""
        self._endings.handed_over = True

    def run(self) -> JobResult:
        """Run the job to its end."""
        try:
            self._take_over()
            self.result.finished = self._head.finished
            while True:
                while not self._head.finished and not self._endings.look():
                    self._turn()
                if self._settle():
                    break
            self._endings.settle(self._pipeline.head)
            self.result.last_epoch = self._pipeline.head.epoch
            self.result.stopped |= self._endings.stopped
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
        except Exception:
            self._life.release("failed")
            raise
        finally:
            self._life.close()
            self._close()

    # --- starting ----------------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Become the driver. One that still drives may commit an epoch meanwhile: then it is gone on from that one."""
        for attempt in range(TAKE_OVERS):
            try:
                self._try_take_over()
                return
            except FencedError:
                newest = find_head(self._storage, fall_back=True).manifest
                if newest is None or newest.term >= self._term or attempt == TAKE_OVERS - 1:
                    raise
                log.info("epoch %d was committed by the driver that is to be replaced", newest.epoch)
                self._close_ends()

    def _try_take_over(self) -> None:
        """Finish what the last driver committed, lay state out, commit an empty epoch."""
        config, storage = self._config, self._storage
        taken = take_over(self._graph, config, storage, self._start, self._python_paths, self._program, self._life.take_term)
        self._job, self._term = taken.job, taken.term
        self.result = JobResult(name=config.name, job=taken.info.job, storage=storage.uri)
        self._sources = open_sources(self._graph, config, storage, self._job, self._executor)
        self._committers = open_committers(self._graph, storage, self._job, taken.term)
        named = describe_sinks(self._graph)
        lost = passed_over(read_mirror(storage), taken.head)
        self._back = look_back(storage, taken.head, taken.before, taken.info.job, config, self._committers, named, lost)
        fail_point("recovery:before-commit")
        finish_commits(storage, taken.head, self._committers, guarantee=config.guarantee, back=self._back)
        if config.guarantee == "exactly-once" and self._back is None:
            confirm_output(storage, taken.head, self._committers)
        fail_point("recovery:committed")
        self._compactor = Compactor(storage, self._job, self._term, config.compact_after, beside=config.executor != "inline")
        self._orphans = OrphanSweep(storage, self._term)
        self._retention = Retention(storage, config.keep)
        self._retention.load(taken.head.epochs)
        self._mirror = mirror_of(storage, config.mirror, taken.info, taken.term, config.keep)
        self._publishing = Publishing(
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
        self._decider = Decider(
            config=config,
            job=self._job,
            term=self._term,
            sources=self._sources,
            admission=self._admission,
            checkpoints=self._checkpoints,
            plan_number=self._head.plan,
        )
        if lost:
            mark_started(storage)
        if self._start is not None:
            self._start.release()
        repairing = config.guarantee == "at-least-once" and self._head.repair is not None  # what it replaces is of a commit
        self._pipeline = Pipeline(self._head, self._publishing.commit, 0 if repairing else self._depth)
        self._checkpoints.made(self._head.processing_time)
        fail_point("recovery:taken-over")
        self._inbox.drop_old()
        sweep_orphans(storage, self._retention.referenced(), self._term, self._head.epoch, self._committers)
        self._executor.start(self._job)
        self._life.ready()
        if self._rescaling is not None:
            fail_point("rescale:taken-over")
            message, result = self._rescaling.told(self._clock.now_ms())
            log.info("%s", message)
            self._inbox.answer(self._rescaling.request, True, message, **result)

    def _commit_take_over(self, taken: Taken) -> None:
        manifest = take_over_manifest(taken, self._config, self._storage, self._clock.now_ms(), self._back)
        if (claim := claim_of(taken, manifest)) is not None:
            write_manifest(self._storage, claim)
            fail_point("rollback:claimed")
        self._publishing.publish(manifest)
        self._head = manifest
        if told := describe(manifest.repair):
            log.warning("%s", told)

    # --- one turn ----------------------------------------------------------------------------------------------------------

    def _turn(self, *, checkpoint: bool = False) -> None:
        """Run an epoch if there is a reason to, otherwise wait. `checkpoint`: to make what has run durable is a reason."""
        self._life.touch()
        try:
            self._pipeline.check()
            if self._careful:
                self._pipeline.drain()
            self._checkpoints.wanted |= checkpoint or self._careful > 0
            committed, waiting = self._pipeline.look()
            now = processing_time(self._clock.now_ms(), self._head)
            decision = self._decider.decide(self._head, committed, waiting, now)
            if isinstance(decision, Decision):
                self._run_epoch(decision)
                self._failures = 0
            elif self._config.until_idle:
                self._endings.idle = True
            else:
                self._wait(decision.wake_ms)
        except (FencedError, SinkRefusedError):
            raise
        except DeltaTooLargeError:
            self._checkpoints.wanted = True
        except LayersLostError as error:
            log.info("%s", error.what)
            self._careful = CAREFUL
            self._recover(error, free=True)
        except PenstockError as error:
            self._recover(error)

    def _settle(self) -> bool:
        """Have all that has run committed; False if there is more to do."""
        _, waiting = self._pipeline.look()
        if waiting and not waiting[-1].durable:
            self._turn(checkpoint=True)
            return False
        try:
            self._pipeline.drain()
        except (FencedError, SinkRefusedError):
            raise
        except PenstockError as error:
            self._recover(error)
            return False
        return True

    def _run_epoch(self, decision: Decision) -> None:
        started = time.perf_counter()
        order, durability = decision.order, decision.durability
        if self._config.guarantee == "at-most-once":
            write_intent(self._storage, self._job.job, order.epoch, self._term, decision.sources)
        self._retention.in_use = order.head
        reports: list[TaskReport] = []
        try:
            reports = self._executor.run(order)
            fail_point("epoch:ran")
            check_agreement(self._job, reports)
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
            self._clock.sleep(pause)

    # --- trouble -----------------------------------------------------------------------------------------------------------

    def _recover(self, error: PenstockError, *, free: bool = False) -> None:
        """After a failed epoch: wait and try again, or give up with the reason. `free`: this failure does not count."""
        while True:
            if not free:
                self._wait_after(error)
            try:
                if isinstance(error, ExecutorLostError):
                    self._executor.restart()
                self._regroup(error)
                break
            except (FencedError, SinkRefusedError):
                raise
            except PenstockError as another:  # the storage, say, is not back yet
                error, free = another, False
        if self._config.guarantee == "at-most-once":
            self._skip_failed()

    def _wait_after(self, error: PenstockError) -> None:
        self._failures += 1
        self.result.restarts += 1
        self._orphans.failed()
        delay = self._config.restart.delay_ms(self._failures)
        if delay is None:
            last = self._pipeline.head.epoch
            error.add_note(f"gave up after {self._failures} failures in a row; the last committed epoch is {last}")
            raise error
        log.warning("epoch failed (%d in a row), trying again in %d ms: %s", self._failures, delay, error)
        self._clock.sleep(delay / 1000)

    def _regroup(self, error: PenstockError) -> None:
        """After a failure: what can still be committed is, what was run on top of what cannot is given up."""
        failed = isinstance(error, LayersLostError)
        try:
            self._pipeline.drain()
        except (FencedError, SinkRefusedError):
            raise
        except PenstockError:
            failed = True
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
            self._pipeline.reset(skipped)
            self._head = skipped

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
            self._retention.sweep()
        if time.monotonic() - self._warmed > KEEP_WARM_S:
            self._warmed = time.monotonic()
            self._executor.keep_warm()
        pause = IDLE_POLL_S
        if wake_ms is not None and wake_ms != MAX_WATERMARK:
            pause = max(0.001, min(0.25, (wake_ms - self._clock.now_ms()) / 1000))
        self._clock.sleep(pause)

    def _close_ends(self) -> None:
        for source in self._sources:
            _quietly(source.close)
        for committer in self._committers.values():
            _quietly(committer.close)
        if hasattr(self, "_compactor"):
            _quietly(self._compactor.close)
        if self._mirror is not None:
            _quietly(self._mirror.close)

    def _close(self) -> None:
        if hasattr(self, "_pipeline"):
            _quietly(self._pipeline.close)
            _quietly(self._publishing.close)
        self._close_ends()
        if self._endings.rescale is None:
            _quietly(self._executor.close)


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

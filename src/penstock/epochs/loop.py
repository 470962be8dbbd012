"""The epoch loop: plain Python on the driver, the same over every executor.

    take over → (plan → run → manifest → sinks → done)* → finished, stopped, or failed for good

An epoch that fails before its manifest has had no effect: it is simply planned anew, with a new plan number, after a delay.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.config import JobConfig
from penstock.connectors.protocol import Committer
from penstock.epochs.admission import Admission
from penstock.epochs.agreement import check_agreement
from penstock.epochs.commit import commit_sinks, mark_done, write_manifest
from penstock.epochs.compactor import Compactor
from penstock.epochs.control import Inbox, Request
from penstock.epochs.ends import open_committers, open_sources
from penstock.epochs.executor import Executor
from penstock.epochs.fencing import fenced, find_head
from penstock.epochs.history import EpochRecord, JobResult, Listener, shown_watermark, watermark_lag
from penstock.epochs.inputs import SourceInput, SourcePlan, merge_clocks
from penstock.epochs.intents import read_intent, write_intent
from penstock.epochs.orphans import OrphanSweep
from penstock.epochs.results import counters_of, metrics_of, next_layout, partition_states, volatile_of, watermarks_of
from penstock.epochs.retention import Retention
from penstock.epochs.takeover import (
    Start,
    Taken,
    finish_commits,
    processing_time,
    sweep_orphans,
    take_over,
    take_over_manifest,
)
from penstock.errors import ExecutorLostError, FencedError, PenstockError, SinkRefusedError
from penstock.failpoints import fail_point
from penstock.ids import MAX_WATERMARK, Epoch, Milliseconds, StepId, Term
from penstock.plan.nodes import Graph
from penstock.plan.rewrites import rewrite
from penstock.runtime.job import CompiledJob
from penstock.runtime.manifest import VERSION, Manifest, Restored, SourceState
from penstock.runtime.orders import EpochOrder, TaskReport
from penstock.storage import Storage
from penstock.timing.durations import to_ms

log = logging.getLogger("penstock")

IDLE_POLL_S = 0.01
KEEP_WARM_S = 20.0


class Clock:
    """Time for the loop; tests have their own."""

    def now_ms(self) -> Milliseconds:
        return round(time.time() * 1000)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An epoch that is to be run: the order for the tasks, and the sources' states if it succeeds."""

    order: EpochOrder
    sources: dict[str, SourceState]
    started_ms: Milliseconds
    final: bool


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
    ) -> None:
        self._graph = rewrite(graph)
        self._config = config
        self._storage = storage
        self._executor = executor
        self._clock = clock or Clock()
        self._listeners = listeners
        self._python_paths = python_paths
        self._start = start
        self._plan_number = 0
        self._failures = 0
        self._stop: Request | None = None
        self._stop_asked = False
        self._inbox = Inbox(storage)
        self._retention = Retention(storage, config.keep)
        self._admission = Admission(
            target_ms=to_ms(config.target_epoch),
            max_records=config.max_records_per_epoch,
            max_bytes=config.max_bytes_per_epoch,
            readers=config.parallelism,
            first=config.first_records_per_epoch,
        )
        self._warmed = time.monotonic()
        self.result: JobResult
        self._head: Manifest
        self._job: CompiledJob
        self._compactor: Compactor
        self._orphans: OrphanSweep
        self._term: Term
        self._restored: Restored | None
        self._sources: list[SourceInput] = []
        self._committers: dict[StepId, Committer] = {}

    def request_stop(self) -> None:
        """Stop after the current epoch. Safe from a signal handler or another thread."""
        self._stop_asked = True

    def run(self) -> JobResult:
        """Run the job to its end."""
        try:
            self._take_over()
            if self._head.finished:
                self.result.finished = True
            while not self.result.finished and not self._stopping():
                self._turn()
            self._answer_stop()
            return self.result
        finally:
            self._close()

    # --- starting ----------------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Become the driver: finish what the last one committed, lay state out, commit an empty epoch."""
        config, storage = self._config, self._storage
        taken = take_over(self._graph, config, storage, self._start, self._python_paths)
        self._job, self._term, self._restored = taken.job, taken.term, taken.restored
        self.result = JobResult(name=config.name, job=taken.info.job, storage=storage.uri)
        self._sources = open_sources(self._graph, config, storage, taken.info, self._executor)
        self._committers = open_committers(self._graph, storage, taken.info, taken.term)
        fail_point("recovery:before-commit")
        finish_commits(storage, taken.head, self._committers, exactly_once=config.guarantee == "exactly-once")
        fail_point("recovery:committed")
        self._compactor = Compactor(storage, self._job, self._term, config.compact_after, beside=config.executor != "inline")
        self._orphans = OrphanSweep(storage, self._term)
        self._retention.load(taken.head.epochs)
        self._commit_take_over(taken)
        fail_point("recovery:taken-over")
        self._inbox.drop_old()
        sweep_orphans(storage, self._retention.referenced(), self._term, self._head.epoch, self._committers)
        self._executor.start(self._job)

    def _commit_take_over(self, taken: Taken) -> None:
        manifest = take_over_manifest(taken, self._config, self._storage, self._clock.now_ms())
        self._plan_number = manifest.plan
        self._publish(manifest)

    def _publish(self, manifest: Manifest) -> None:
        """Manifest, sinks, done: the epoch is the head now."""
        write_manifest(self._storage, manifest)
        self._complete(manifest)

    def _complete(self, manifest: Manifest) -> None:
        """The manifest exists: its sinks are committed, again and again if need be, and it becomes the head."""
        if self._config.guarantee != "at-least-once":
            self._insist(lambda: commit_sinks(self._committers, manifest.committables, manifest.epoch), manifest.epoch)
        mark_done(self._storage, manifest.epoch)
        self._head = manifest
        self._retention.committed(manifest)

    def _insist(self, action: Callable[[], None], epoch: Epoch) -> None:
        """A committed epoch cannot be planned anew: a sink that refuses is asked again, until the restart policy gives up."""
        failures = 0
        while True:
            try:
                return action()
            except FencedError:
                raise
            except PenstockError as error:
                failures += 1
                delay = self._config.restart.delay_ms(failures)
                if delay is None:
                    error.add_note(
                        f"epoch {epoch} is committed and its output is staged; it will be published when the job starts again"
                    )
                    raise SinkRefusedError(error.what, detail=error.detail, hint=error.hint) from error
                log.warning("epoch %d is committed but a sink refused, trying again in %d ms: %s", epoch, delay, error)
                self.result.restarts += 1
                self._clock.sleep(delay / 1000)

    # --- one turn ----------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Run an epoch if there is a reason to, otherwise wait."""
        try:
            decision, wake_ms = self._decide()
            if decision is None:
                if self._config.until_idle:
                    self._stop_asked = True
                else:
                    self._wait(wake_ms)
                return
            self._run_epoch(decision)
            self._failures = 0
        except (FencedError, SinkRefusedError):
            raise
        except PenstockError as error:
            self._recover(error)

    def _decide(self) -> tuple[Decision | None, Milliseconds | None]:
        """What the next epoch is, if there is a reason for one; else, when to look again."""
        head, config = self._head, self._config
        now = processing_time(self._clock.now_ms(), head)
        limits = self._admission.limits(sum(not head.sources.get(s.step, SourceState()).ended for s in self._sources))
        plans: dict[str, SourcePlan] = {}
        for source in self._sources:
            state = head.sources.get(source.step, SourceState())
            plan = source.plan(state, limits, now, config.parallelism)
            if config.guarantee == "at-most-once" and plan.backlog is not None and plan.backlog > 2 * limits.records:
                plan = source.plan(source.shed(state, now), limits, now, config.parallelism)
            plans[source.step] = plan
        fail_point("source:planned")
        ended = all(plan.after.ended for plan in plans.values())
        due = self._next_processing_timer()
        if not any(plan.news for plan in plans.values()) and not ended and (due is None or due > now):
            wakes = [plan.wake_ms for plan in plans.values() if plan.wake_ms is not None]
            soon = any(plan.wake_ms is None for plan in plans.values())
            return None, None if soon else min([*wakes, *([due] if due is not None else [])], default=None)
        self._plan_number += 1
        order = EpochOrder(
            epoch=Epoch(head.epoch + 1),
            term=self._term,
            plan=self._plan_number,
            head=head.epoch,
            processing_time=now,
            sources={step: plan.order for step, plan in plans.items()},
            watermarks=head.watermarks,
            states=partition_states(head.state),
            final=ended,
        )
        return Decision(order=order, sources={s: p.after for s, p in plans.items()}, started_ms=now, final=ended), None

    def _next_processing_timer(self) -> Milliseconds | None:
        ids = {number for (_, name), number in self._job.state_ids.items() if name == "timers:processing"}
        due = [time for stage in self._head.state.next_due for times in stage for i, time in times.items() if i in ids]
        return min(due, default=None)

    def _run_epoch(self, decision: Decision) -> None:
        started = time.perf_counter()
        order = decision.order
        if self._config.guarantee == "at-most-once":
            write_intent(self._storage, order.epoch, self._term, decision.sources)
        reports: list[TaskReport] = []
        try:
            reports = self._executor.run(order)
            fail_point("epoch:ran")
            check_agreement(self._job, reports)
        except PenstockError:
            self._abort(order.epoch, reports)
            raise
        ran = time.perf_counter() - started
        if self._config.guarantee == "at-least-once":
            commit_sinks(self._committers, _committables(reports), publication_of(order))
        manifest = self._next_manifest(decision, reports)
        self._publish(manifest)
        commit_sinks(self._committers, volatile_of(reports), order.epoch)
        for source in self._sources:
            source.committed(manifest.sources[source.step], order.epoch)
        self._after(decision, manifest, reports, ran, time.perf_counter() - started)

    def _next_manifest(self, decision: Decision, reports: list[TaskReport]) -> Manifest:
        order, head = decision.order, self._head
        clocks: dict[str, dict[str, object]] = {}
        for report in reports:
            for step, reported in report.clocks.items():
                clocks.setdefault(step, {}).update(reported)
        return Manifest(
            version=VERSION,
            job=self._job.job,
            epoch=order.epoch,
            term=self._term,
            plan=order.plan,
            parent=head.epoch,
            processing_time=order.processing_time,
            created_ms=self._clock.now_ms(),
            sources=merge_clocks(decision.sources, clocks),
            watermarks={**head.watermarks, **watermarks_of(reports)},
            state=self._compactor.adopt(next_layout(head.state, reports)),
            committables=_committables(reports) if self._config.guarantee != "at-least-once" else {},
            read=order.sources,
            metrics=metrics_of(reports),
            finished=decision.final,
            restored=self._restored,
        )

    def _after(self, decision: Decision, manifest: Manifest, reports: list[TaskReport], ran: float, took: float) -> None:
        """Learn, tell, and tidy up. The epoch is committed."""
        sources = {source.step for source in self._sources}
        sinks = set(self._committers)
        read = sum(m.records_in for step, m in manifest.metrics.items() if step in sources)
        watermarks = [shown_watermark(manifest.watermarks[step]) for step in sources if step in manifest.watermarks]
        record = EpochRecord(
            epoch=manifest.epoch,
            started_ms=decision.started_ms,
            committed_ms=self._clock.now_ms(),
            seconds=took,
            run_seconds=ran,
            records_in=read,
            records_out=sum(m.records_in for step, m in manifest.metrics.items() if step in sinks),
            skipped=sum(m.skipped for m in manifest.metrics.values()),
            watermark_ms=min((w for w in watermarks if w is not None), default=None),
            state_entries=sum(r.entries for r in reports if r.entries is not None) or None,
            local_hits=sum(r.origin == "local" for r in reports),
            rebuilt=sum(r.origin == "rebuilt" for r in reports),
            shed=sum(state.shed for state in manifest.sources.values()),
            steps={step: (m.records_in, m.records_out) for step, m in manifest.metrics.items()},
            watermark_lag=watermark_lag(manifest.processing_time, manifest.watermarks, manifest.metrics),
        )
        self._admission.learn(read, took)
        self.result.add(record)
        counters_of(reports, self.result.counters)
        self.result.finished = manifest.finished
        for listener in self._listeners:
            listener(record)
        self._compactor.consider(manifest)
        self._orphans.committed(manifest, self._retention, self._compactor)
        self._warmed = time.monotonic()
        pause = to_ms(self._config.epoch_interval) / 1000 - took
        if pause > 0:
            self._clock.sleep(pause)

    # --- trouble -----------------------------------------------------------------------------------------------------------

    def _recover(self, error: PenstockError) -> None:
        """After a failed epoch: wait and try again, or give up with the reason."""
        self._failures += 1
        self.result.restarts += 1
        self._orphans.failed()
        delay = self._config.restart.delay_ms(self._failures)
        if delay is None:
            error.add_note(f"gave up after {self._failures} failures in a row; the last committed epoch is {self._head.epoch}")
            raise error
        log.warning("epoch failed (%d in a row), trying again in %d ms: %s", self._failures, delay, error)
        self._clock.sleep(delay / 1000)
        if isinstance(error, ExecutorLostError):
            self._executor.restart()
        committed = find_head(self._storage).manifest
        if committed is not None and committed.epoch > self._head.epoch:
            # The outcome of creating the manifest was not known, and it was created after all.
            if committed.term != self._term:
                raise fenced(committed.epoch) from error
            self._complete(committed)
            self.result.finished = committed.finished
        elif self._config.guarantee == "at-most-once":
            self._skip_failed()

    def _skip_failed(self) -> None:
        """At most once: what the failed epoch was to read is not read again."""
        sources = read_intent(self._storage, self._head.epoch)
        if sources:
            self._plan_number += 1
            head = self._head
            self._publish(
                Manifest(
                    version=VERSION,
                    job=head.job,
                    epoch=Epoch(head.epoch + 1),
                    term=self._term,
                    plan=self._plan_number,
                    parent=head.epoch,
                    processing_time=head.processing_time,
                    created_ms=self._clock.now_ms(),
                    sources={**head.sources, **sources},
                    watermarks=head.watermarks,
                    state=head.state,
                    restored=self._restored,
                )
            )

    def _abort(self, epoch: Epoch, reports: list[TaskReport]) -> None:
        """Let the sinks drop what was staged for an epoch that will not be."""
        for step, items in _committables(reports).items():
            committer = self._committers.get(StepId(step))
            if committer is not None:
                try:
                    committer.abort(epoch, items)
                except Exception as error:
                    log.warning("the sink %s could not drop what epoch %d had staged: %s", step, epoch, error)

    # --- waiting and stopping ----------------------------------------------------------------------------------------------

    def _wait(self, wake_ms: Milliseconds | None) -> None:
        self._retention.sweep()
        if time.monotonic() - self._warmed > KEEP_WARM_S:
            self._warmed = time.monotonic()
            self._executor.keep_warm()
        pause = IDLE_POLL_S
        if wake_ms is not None and wake_ms != MAX_WATERMARK:
            pause = max(0.001, min(0.25, (wake_ms - self._clock.now_ms()) / 1000))
        self._clock.sleep(pause)

    def _stopping(self) -> bool:
        if self._stop_asked:
            self.result.stopped = True
            return True
        for request in self._inbox.pending():
            if request.kind == "stop":
                self._stop = request
                self.result.stopped = True
                return True
            self._inbox.answer(request, False, f"this job does not know the request {request.kind!r}")
        return False

    def _answer_stop(self) -> None:
        if self._stop is not None:
            self._inbox.answer(self._stop, True, f"stopped after epoch {self._head.epoch}", epoch=self._head.epoch)

    def _close(self) -> None:
        for source in self._sources:
            _quietly(source.close)
        for committer in self._committers.values():
            _quietly(committer.close)
        if hasattr(self, "_compactor"):
            _quietly(self._compactor.close)
        _quietly(self._executor.close)


def publication_of(order: EpochOrder) -> Epoch:
    """At least once: a number for what an attempt of an epoch publishes, so that a second attempt publishes beside it."""
    return Epoch(order.epoch * 1_000_000 + order.term % 1000 * 1000 + order.plan % 1000)


def _committables(reports: list[TaskReport]) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for report in sorted(reports, key=lambda r: (r.stage, r.partition)):
        for step, committable in report.committables.items():
            found.setdefault(step, []).append(committable)
    return found


def _quietly(action: Callable[[], None]) -> None:
    try:
        action()
    except Exception as error:
        log.warning("while closing: %s", error)

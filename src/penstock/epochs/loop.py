"""The epoch loop: plain Python on the driver, the same over every executor.

    take over → (plan → run → hand over to be committed)* → finished, stopped, or failed for good

Commits happen beside the epochs (see `penstock.epochs.committing.pipeline`): the next epoch continues from what the last one
left, committed or not. `recovery` deals with failures; `lifecycle` has the states that a driver goes through.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from penstock.deadlines import OpenEnds
from penstock.epochs.availability.lease_holder import SignOfLife
from penstock.epochs.committing.commit_protocol import commit_sinks
from penstock.epochs.committing.intents import write_intent
from penstock.epochs.committing.persisting import Persistence
from penstock.epochs.driven import Driven
from penstock.epochs.executor import Abandons
from penstock.epochs.history import JobResult
from penstock.epochs.lifecycle import Lifecycle
from penstock.epochs.planning.epoch_planner import Decision
from penstock.epochs.planning.next_manifest import manifest_after
from penstock.epochs.planning.report_check import check_reports
from penstock.epochs.planning.report_merge import committables_of
from penstock.epochs.recovery import Recovery
from penstock.epochs.setup import Setup
from penstock.epochs.starting.local_state import LocalState
from penstock.epochs.starting.rescaling import Rescale
from penstock.epochs.starting.rewind import publication_of
from penstock.epochs.starting.sequence import TakeOverSequence
from penstock.epochs.starting.takeover import Start, processing_time
from penstock.epochs.stop_requests import StopRequests
from penstock.errors import EpochFailedError, FencedError, PenstockError, SinkRefusedError
from penstock.failpoints import fail_point
from penstock.ids import MAX_WATERMARK, Milliseconds
from penstock.jobs.requests import Inbox
from penstock.runtime.messages import TaskReport
from penstock.timing.durations import to_ms

log = logging.getLogger("penstock")

IDLE_POLL_S = 0.01
KEEP_WARM_S = 20.0


class EpochLoop:
    """Runs one job, in one process, until it is finished, stopped, fenced or failed. `rescale`: the request it is started for."""

    def __init__(
        self,
        setup: Setup,
        *,
        start: Start | None = None,
        rescale: Rescale | None = None,
        life: SignOfLife | None = None,
        lifecycle: Lifecycle | None = None,
    ) -> None:
        self._setup = setup
        self._config = setup.config
        self._clock = setup.clock
        self._rescaling = rescale
        self._life = life or SignOfLife(setup.storage, setup.config)
        self._lifecycle = lifecycle or Lifecycle("taking over")
        self._inbox = Inbox(setup.storage)
        self._requests = StopRequests(self._inbox, self._clock, drain=self._config.drain)
        self._persistence = Persistence(self._config.restart, self._clock, self._asked_to_stop)
        self._local = LocalState(setup)
        self._ends = OpenEnds(to_ms(self._config.stop_within) / 1000)
        self._sequence = TakeOverSequence(
            setup=setup, start=start, life=self._life, local=self._local, persistence=self._persistence, ends=self._ends
        )
        self._at_once = False
        """Stopped in the middle of something: nothing is waited for."""
        self._overdue = ""
        """Why what runs is not waited for, though the job was to stop after it."""
        self._came_round = 0.0
        self._warmed = time.monotonic()
        self._taken_over: Driven | None = None
        self._recovery: Recovery

    @property
    def _driven(self) -> Driven:
        assert self._taken_over is not None
        return self._taken_over

    # --- from outside ------------------------------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Stop after the current epoch. Safe from a signal handler or another thread."""
        self._requests.handed_over = True

    def _asked_to_stop(self) -> bool:
        return self._requests.handed_over

    def look_ahead(self) -> bool:
        """Is there a request to stop? For when the loop is held up. Safe from another thread."""
        return self._requests.look_ahead()

    @property
    def held_up_s(self) -> float:
        """For how long the loop has not come round; 0 before it is ready."""
        return time.monotonic() - self._came_round if self._came_round else 0.0

    def give_up(self, because: str) -> None:
        """Stop without waiting for anything. Safe from another thread, which then interrupts the executor."""
        self._overdue = because
        if self._taken_over is not None:
            self._taken_over.pipeline.give_up(EpochFailedError(because))

    # --- from the start to the end -----------------------------------------------------------------------------------------

    def run(self) -> JobResult:
        """Run the job to its end."""
        try:
            self._lifecycle.enter("taking over")
            self._taken_over = self._sequence.take_over()
            self._begin()
            while not self._recovery.attempt(self._step):
                pass
            return self._end()
        except FencedError:
            raise
        except Exception as error:
            if self._overdue and self._taken_over is not None and not isinstance(error, SinkRefusedError):
                return self._leave_off(error)
            self._life.release("failed")
            raise
        except (KeyboardInterrupt, SystemExit):
            self._at_once = True
            raise
        finally:
            self._life.close()
            self._close()

    def _begin(self) -> None:
        """The take-over is committed: what there is to do before the first epoch."""
        self._sequence.finish(self._driven)
        self._recovery = Recovery(
            setup=self._setup,
            driven=self._driven,
            persistence=self._persistence,
            requests=self._requests,
            lifecycle=self._lifecycle,
            overdue=lambda: self._overdue,
        )
        self._life.ready()
        self._lifecycle.enter("running")
        if self._rescaling is not None:
            fail_point("rescale:taken-over")
            message, result = self._rescaling.summary(self._clock.now_ms())
            log.info("%s", message)
            answer = partial(self._inbox.answer, self._rescaling.request, True, message, **result)
            self._persistence.if_possible(answer, "the request to rescale was not answered")

    def _end(self) -> JobResult:
        driven, requests, result = self._driven, self._requests, self._driven.result
        last = driven.pipeline.head
        self._persistence.if_possible(lambda: requests.settle(last), "the request to stop was not answered")
        result.last_epoch = last.epoch
        result.stopped |= requests.stopped
        result.drained = last.drained is not None
        result.rescale = requests.rescale
        result.restarts += self._persistence.restarts
        if result.rescale is not None:
            self._lifecycle.enter("rescaling")
            fail_point("rescale:stopped")
        else:
            if driven.mirror is not None:
                driven.mirror.finish()
            self._life.release("finished" if driven.head.finished else requests.named)
        return result

    def _leave_off(self, error: Exception) -> JobResult:
        """The last committed epoch is the end."""
        self._lifecycle.enter("giving up")
        result, head = self._driven.result, self._driven.pipeline.head
        log.warning("nothing is committed after epoch %d: %s", head.epoch, self._overdue)
        log.debug("what ended the wait: %s", error)
        result.last_epoch, result.stopped = head.epoch, True
        result.restarts += self._persistence.restarts
        self._requests.settle(head, self._overdue)
        self._life.release(self._requests.named)
        return result

    def _close(self) -> None:
        closing, driven, executor = self._ends.closing(), self._taken_over, self._setup.executor
        if driven is not None:
            closing.end("the commit under way", lambda: driven.pipeline.close(wait=not self._at_once))
            closing.end("the files being written", driven.commits.close)
        if self._at_once and isinstance(executor, Abandons):
            closing.end("the executor", executor.abandon)
            self._ends.close(closing)
        else:
            self._ends.close(closing)
            if self._requests.rescale is None:
                self._local.ends(finished=driven is not None and driven.result.finished)
                _quietly(executor.close)  # which has a deadline of its own
        _quietly(self._local.leave)

    # --- one turn ----------------------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        """Look whether the job is to end; if not, take a turn. True: this is the end, and all that has run is committed."""
        driven, requests = self._driven, self._requests
        if not driven.head.finished:
            if not requests.look(driven.job, driven.head):
                self._turn()
                return False
            self._lifecycle.enter(requests.state)
        if not self._settle():
            return False
        if driven.head.finished:
            return True
        if not requests.draining:
            self._lifecycle.enter(requests.state)  # a signal may have come meanwhile
            return True
        self._turn(drain=True)
        return False

    def _turn(self, *, checkpoint: bool = False, drain: bool = False) -> None:
        """Run an epoch if there is a reason to, otherwise wait. `checkpoint`: to make what has run durable is a reason.
        `drain`: to end all time is one."""
        self._life.touch()
        self._came_round = time.monotonic()
        driven, recovery = self._driven, self._recovery
        driven.pipeline.check()
        if recovery.careful:
            driven.pipeline.drain()
        driven.checkpoints.wanted |= checkpoint or recovery.careful > 0
        committed, waiting = driven.pipeline.look()
        now = processing_time(self._clock.now_ms(), driven.head)
        while self._requests.refreshes:
            request = self._requests.refreshes.pop(0)
            self._inbox.answer(request, *driven.planner.tables.ask(request.options.get("step")))
        decision = driven.planner.decide(driven.head, committed, waiting, now, drain=drain)
        if isinstance(decision, Decision):
            self._run_epoch(decision)
            recovery.forgive()
        elif self._config.until_idle and driven.planner.idle():
            self._requests.idle = True
        else:
            self._wait(decision.wake_ms)
            if not waiting:
                recovery.forgive()

    def _settle(self) -> bool:
        """Have all that has run committed; False if there is more to do."""
        _, waiting = self._driven.pipeline.look()
        if waiting and not waiting[-1].durable:
            self._turn(checkpoint=True)
            return False
        self._driven.pipeline.drain()
        return True

    def _run_epoch(self, decision: Decision) -> None:
        started = time.perf_counter()
        driven, config, storage = self._driven, self._config, self._setup.storage
        order, durability = decision.order, decision.durability
        if config.guarantee == "at-most-once" and decision.drained is None:  # which reads nothing, and may be tried again
            write_intent(storage, driven.job.job, order.epoch, driven.term, decision.sources, order.sources)
        driven.retention.in_use = order.head
        reports: list[TaskReport] = []
        try:
            reports = self._setup.executor.run(order)
            short = [report.short for report in reports if report.short is not None]
            if short:
                driven.planner.fell_short(decision, min(short))
                driven.abort(order.epoch, reports)
                return
            driven.warn(reports)
            fail_point("epoch:ran")
            check_reports(driven.job, reports, order.laps)
        except PenstockError:
            driven.abort(order.epoch, reports)
            raise
        if config.guarantee == "at-least-once":
            commit_sinks(driven.committers, committables_of(reports), publication_of(order))
        manifest = manifest_after(driven.head, decision, reports, config, self._clock.now_ms())
        ran = driven.ran(decision, reports, manifest, started)
        driven.head = manifest
        driven.planner.ran(decision, reports)
        if durability.durable:
            driven.checkpoints.made(decision.started_ms)
        driven.pipeline.submit(ran)
        if durability.deltas == "reported" and len(ran.contents) < len(ran.files):
            driven.pipeline.drain()  # what is too large for a report is too large for a layer
        self._recovery.careful = max(0, self._recovery.careful - 1)
        self._warmed = time.monotonic()
        took = time.perf_counter() - started
        driven.admission.learn(ran.record.records_in, took)
        pause = to_ms(config.epoch_interval) / 1000 - took
        if pause > 0:
            self._clock.pause(pause, self._asked_to_stop)

    def _wait(self, wake_ms: Milliseconds | None) -> None:
        if not self._driven.pipeline.look()[1]:
            self._driven.retention.tidy()
        if time.monotonic() - self._warmed > KEEP_WARM_S:
            self._warmed = time.monotonic()
            self._setup.executor.keep_warm()
        pause = IDLE_POLL_S
        if wake_ms is not None and wake_ms != MAX_WATERMARK:
            pause = max(0.001, min(0.25, (wake_ms - self._clock.now_ms()) / 1000))
        self._clock.sleep(pause)


def _quietly(action: Callable[[], None]) -> None:
    try:
        action()
    except Exception as error:
        log.warning("while closing: %s", error)

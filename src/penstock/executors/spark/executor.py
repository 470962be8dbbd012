"""The Spark executor: an epoch is one job of RDD stages.

Between two stages frames travel through Spark's own shuffle as raw bytes. On a cluster a cached, empty *anchor* is united
with every shuffled stage: it makes a partition prefer the executor that had it before, where its store is.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.deadlines import Closing, ended_within
from penstock.errors import EnvironmentProblemError, EpochFailedError, ExecutorLostError, PenstockError
from penstock.executors.spark.bridge import Bridge
from penstock.executors.spark.engine import SparkEngine
from penstock.executors.spark.session import (
    forget_session,
    is_cluster,
    kill_java,
    kill_session,
    make_context,
    running_context,
    session_of,
)
from penstock.executors.spark.warmup import WarmUp
from penstock.executors.spark.watch import CANCEL_S, FIRST_S, START_S, JobWatch, Watched
from penstock.executors.spark.worker import CloseFunctions, Rehearsal, StageFunction, nothing
from penstock.failpoints import fail_point
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import EpochOrder, TaskReport, decode_reports, encode_order

log = logging.getLogger("penstock")

REHEARSE_S = 10.0
"""A storage that does not answer for so long is not waited for: the rehearsal comes later."""

_BROADCAST_ABOVE = 64 * 1024


class SparkExecutor:
    """Runs epochs on a Spark session of its own, or on one it was given.

    Everything that Spark is waited for goes through `_on_spark`: there a `JobWatch` looks on, and what Spark raises becomes ours.
    """

    def __init__(
        self,
        name: str,
        master: str | None,
        config: dict[str, str],
        session: SparkSession | None = None,
        *,
        stall_s: float = 60.0,
        close_s: float = 20.0,
    ) -> None:
        self._name = name
        self._master = master
        self._config = config
        self._given = session
        self._close_s = close_s
        self._own = False
        self._context: SparkContext | None = session.sparkContext if session is not None else None
        self._session: SparkSession | None = session
        """Made only for a source that needs it."""
        self._ahead: WarmUp | None = None
        """What was begun before Spark is needed."""
        self._rehearsed = False
        self._ends = False
        """What was begun ahead is being killed."""
        self._job: CompiledJob | None = None
        self._drops = False
        self._engine = SparkEngine(own=session is None)
        self._watch = JobWatch(self._engine, stall_s)
        self._lost = ""
        """How the session was lost that was there last."""

    # --- life --------------------------------------------------------------------------------------------------------------

    def session(self) -> SparkSession:
        """The session, for sources that read by Spark: made when first needed."""
        context = self.context()
        if self._session is None:
            with self._on_spark("Spark that makes a session"):
                self._session = session_of(context)
        return self._session

    def context(self) -> SparkContext:
        """The context, made when first needed, unless it is being made already."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.wait()
        return self._made()

    def _made(self) -> SparkContext:
        if self._context is None:
            running = running_context()
            with self._on_spark("Spark that starts", starting=True):
                self._context = make_context(self._name, self._master, self._config)
            self._own = running is None
        return self._context

    def begin(self, parallelism: int) -> None:
        """Start Spark, and its Python workers, in a thread: the job will be there soon."""
        if self._context is None and (self._ahead is None or not self._ahead.runs) and running_context() is None:
            self._ahead = WarmUp(lambda: self._warm(parallelism))

    def prepare(self, parallelism: int, rehearse: Callable[[], CompiledJob | None]) -> None:
        """The same, for a job that may come, or not; and, once, what its workers need to load of the program."""

        def warm() -> None:
            try:
                self._warm(parallelism, None if self._rehearsed else rehearse)
            except Exception as error:
                log.warning("this standby could not get ready, which is tried again: %s", error)

        if self._ahead is None or not self._ahead.runs:
            self._ahead = WarmUp(warm)

    def _warm(self, parallelism: int, rehearse: Callable[[], CompiledJob | None] | None = None) -> None:
        try:
            context = self._made()
            with self._on_spark("a job that warms workers up", context):
                bridge = Bridge(context, parallelism)
                bridge.collect(bridge.stage(bridge.start, nothing, first=True))
            if rehearse is not None:
                self._rehearse(bridge, rehearse)
        except EpochFailedError as error:
            self._rehearsed = False
            if self._ends:
                return
            log.warning("the Spark session was lost before there was a job: %s", error)
            if self._given is None:
                forget_session()
                self._context = self._session = None

    def _rehearse(self, bridge: Bridge, rehearse: Callable[[], CompiledJob | None]) -> None:
        found: list[CompiledJob | None] = []
        ended_within(REHEARSE_S, lambda: found.append(rehearse()), "penstock-rehearse")
        for job in found:
            if job is not None:
                with self._on_spark("a job that rehearses the start"):
                    bridge.collect(bridge.stage(bridge.start, Rehearsal(job.dumps()), first=True))
                self._rehearsed = True

    def start(self, job: CompiledJob) -> None:
        self._job = job
        self._job_bytes = job.dumps()
        self._digest = hashlib.sha256(self._job_bytes).hexdigest()
        self._prepare()

    def restart(self) -> None:
        """Start anew after the session was lost."""
        if self._given is not None:
            raise ExecutorLostError(
                "the Spark session that was given to the environment is gone",
                detail=self._lost,
                hint="make a new session and start the job again; without spark= Penstock restarts its own",
                nature="configuration",
            )
        forget_session()
        self._context = self._session = None
        try:
            self._prepare()
        except EnvironmentProblemError as error:  # what has worked before may work again: the cluster's master is away, say
            what = f"Spark cannot be started anew: {error.what}"
            raise ExecutorLostError(what, detail=error.detail, hint=error.hint) from error

    def close(self) -> None:
        """Close the user's functions and stop the session, within a time that can be set."""
        closing = Closing(self._close_s)
        self._leave_ahead(closing.left_s)
        if not self._watch.refusal:
            closing.end("the functions in Spark's workers", self._close_functions)
        context, session = self._context, self._session
        self._context = self._session = None
        if context is not None and self._own:
            if self._watch.refusal or closing.left_behind:
                forget_session()
            else:
                closing.end("the Spark session", context.stop if session is None else session.stop)
                if closing.left_behind:
                    kill_session()
        elif context is not None and not closing.left_behind:
            self._engine.leave()
        self._watch.close()

    def _leave_ahead(self, seconds: float) -> None:
        """What was begun ahead is not needed any more."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or not ahead.runs:
            return
        if self._given is not None:  # a small job in a session that stays
            ended_within(seconds, ahead.wait)
            return
        self._ends = True
        ahead.stop(seconds, kill_java)
        self._ends = False
        kill_session()
        self._context = self._session = None

    def interrupt(self, because: str) -> None:
        self._watch.interrupt(because)

    def abandon(self) -> None:
        """Stop at once, with all that runs."""
        self._watch.close()
        self._leave_ahead(CANCEL_S)
        context, self._context, self._session = self._context, None, None
        if self._own:
            kill_session()
        elif context is not None:
            try:
                ended_within(CANCEL_S, context.cancelAllJobs)
            except Exception as error:
                log.debug("cancelling jobs: %s", error)

    def drop_state(self) -> bool:
        self._drops = True
        return self._own

    def _close_functions(self) -> None:
        if self._context is None or self._job is None:
            return
        try:
            closing = CloseFunctions(self._digest, self._job.local_dir, self._job.job, self._drops)
            with self._on_spark("the job that closes functions"):
                self._bridge.collect(self._bridge.stage(self._bridge.start, closing, first=True))
        except Exception as error:
            log.debug("closing functions: %s", error)

    def _prepare(self) -> None:
        job = self._job
        assert job is not None
        context = self.context()
        with self._on_spark("the jobs that prepare the session", context):
            self._bridge = Bridge(context, job.parallelism)
            large = len(self._job_bytes) > _BROADCAST_ABOVE
            self._shipped: Any = self._bridge.broadcast(self._job_bytes) if large else self._job_bytes
            self._anchor = self._make_anchor() if is_cluster(context) else None

    def _make_anchor(self) -> Any:
        """An empty cached dataset with our partitioner: its partitions stay where they were first computed."""
        bridge = self._bridge
        anchor = bridge.shuffled(bridge.stage(bridge.start, nothing, first=True)).persist(bridge.in_memory())
        anchor.count()
        return anchor

    # --- what Spark is waited for ------------------------------------------------------------------------------------------

    @contextmanager
    def _on_spark(self, what: str, context: SparkContext | None = None, *, starting: bool = False) -> Iterator[None]:
        """Whoever waits for Spark does so in here. `context`: a new one, from now on."""
        if self._watch.refusal:
            raise ExecutorLostError(self._watch.refusal)
        if starting or context is not None:
            self._engine.use(context)
        self._engine.waiting()
        watched = self._watch.begin(what, START_S if starting else 0.0 if self._engine.worked else FIRST_S)
        try:
            yield
            self._engine.worked = self._engine.worked or not starting
        except (PenstockError, PySparkException, Py4JError, ConnectionError, EOFError, RuntimeError) as error:
            failure = _failure(error, watched)
            if isinstance(failure, ExecutorLostError):
                self._lost = failure.what
            if failure is error:
                raise
            raise failure from error
        finally:
            self._watch.end(watched)

    # --- an epoch ----------------------------------------------------------------------------------------------------------

    def run(self, order: EpochOrder) -> list[TaskReport]:
        fail_point("epoch:submit")
        return self.open_state(order)

    def open_state(self, order: EpochOrder) -> list[TaskReport]:
        with self._on_spark("the job of an epoch"):
            return self._run(order)

    def _run(self, order: EpochOrder) -> list[TaskReport]:
        job = self._job
        assert job is not None
        data = encode_order(order)
        key = (self._digest, order.term, order.plan)
        bridge = self._bridge
        rdd = bridge.start
        *chain, (last, last_lap) = job.chain(order.laps)
        for stage, lap in chain:
            function = StageFunction(self._digest, self._shipped, data, key, stage, False, lap)
            shuffled = bridge.shuffled(bridge.stage(rdd, function, first=stage == 0))
            rdd = (shuffled if self._anchor is None else self._anchor.union(shuffled)).rdd()
        final = bridge.stage(rdd, StageFunction(self._digest, self._shipped, data, key, last, True, last_lap), first=last == 0)
        try:
            reports = bridge.collect(final)
        finally:
            if last:
                final.cleanShuffleDependencies(False)
        found: list[TaskReport] = []
        for report in reports:
            found += decode_reports(report)
        return found

    def keep_warm(self) -> None:
        with self._on_spark("a job that keeps workers warm"):
            self._bridge.collect(self._bridge.stage(self._bridge.start, nothing, first=True))


def _failure(error: Exception, watched: Watched) -> PenstockError:
    """What an error of Spark's is to us."""
    if watched.because:
        return ExecutorLostError(f"{watched.what} was given up: {watched.because}")
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, RuntimeError):
        return ExecutorLostError(f"the Spark session does not answer: {error}")
    if isinstance(error, PySparkException):
        return _failed_in_a_task(error)
    if not isinstance(error, Py4JJavaError):
        return ExecutorLostError(f"the Spark session is gone: {type(error).__name__}: {error}")
    text = str(error.java_exception.toString()) if error.java_exception is not None else str(error)
    if "SparkContext was shut down" in text or "stopped SparkContext" in text or "No active SparkContext" in text:
        return ExecutorLostError("the Spark session was shut down", detail=text[:2000])
    return EpochFailedError("a Spark job failed", detail=_interesting(text))


def _failed_in_a_task(error: PySparkException) -> EpochFailedError:
    """A worker raised an error, such as that of a storage which does not answer. Pyspark has made one of its own of it."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    said = [line for line in lines if not line[0].isspace()]  # detail and hint of an error are indented
    last = said[-1] if said else type(error).__name__
    return EpochFailedError(f"a Spark job failed: {last}", detail="\n".join(lines)[-4000:])


def _interesting(text: str) -> str:
    """The lines of a Spark failure that say what happened."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join(lines[:40])[:4000]

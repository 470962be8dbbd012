"""The Spark executor: an epoch is one job of RDD stages.

Between two stages frames travel through Spark's own shuffle as raw bytes. On a cluster a cached, empty *anchor* is united
with every shuffled stage: it makes a partition prefer the executor that had it before, where its store is.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.deadlines import Closing, ended_within
from penstock.errors import EnvironmentProblemError, EpochFailedError, ExecutorLostError, PenstockError
from penstock.executors.spark.bridge import Bridge
from penstock.executors.spark.engine import SparkEngine
from penstock.executors.spark.session import forget_session, is_cluster, kill_session, make_session
from penstock.executors.spark.watch import CANCEL_S, FIRST_S, START_S, JobWatch, Watched
from penstock.executors.spark.worker import CloseFunctions, StageFunction, nothing
from penstock.failpoints import fail_point
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import EpochOrder, TaskReport, decode_reports, encode_order

log = logging.getLogger("penstock")

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
        self._session: SparkSession | None = session
        self._job: CompiledJob | None = None
        self._drops = False
        self._engine = SparkEngine(own=session is None)
        self._watch = JobWatch(self._engine, stall_s)
        self._lost = ""
        """How the session was lost that was there last."""

    # --- life --------------------------------------------------------------------------------------------------------------

    def session(self) -> SparkSession:
        """The session, made when first needed."""
        if self._session is None:
            running = SparkSession.getActiveSession()
            with self._on_spark("Spark that starts", starting=True):
                self._session = make_session(self._name, self._master, self._config)
            self._own = running is None
        return self._session

    def prepare(self, parallelism: int) -> None:
        """The session, and Python workers that have loaded what tasks need."""
        try:
            context = self.session().sparkContext
            with self._on_spark("a job that warms workers up", context):
                bridge = Bridge(context, parallelism)
                bridge.collect(bridge.stage(bridge.start, nothing, first=True))
        except EpochFailedError as error:
            log.warning("the Spark session was lost while standing by: %s", error)
            if self._given is None:
                forget_session()
                self._session = None

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
        self._session = None
        try:
            self._prepare()
        except EnvironmentProblemError as error:  # what has worked before may work again: the cluster's master is away, say
            what = f"Spark cannot be started anew: {error.what}"
            raise ExecutorLostError(what, detail=error.detail, hint=error.hint) from error

    def close(self) -> None:
        """Close the user's functions and stop the session, within a time that can be set."""
        closing = Closing(self._close_s)
        if not self._watch.refusal:
            closing.end("the functions in Spark's workers", self._close_functions)
        session, self._session = self._session, None
        if session is not None and self._own:
            if self._watch.refusal or closing.left_behind:
                forget_session()
            else:
                closing.end("the Spark session", session.stop)
                if closing.left_behind:
                    kill_session()
        elif session is not None and not closing.left_behind:
            self._engine.leave()
        self._watch.close()

    def interrupt(self, because: str) -> None:
        self._watch.interrupt(because)

    def abandon(self) -> None:
        """Stop at once, with all that runs."""
        self._watch.close()
        session, self._session = self._session, None
        if self._own:
            kill_session()
        elif session is not None:
            try:
                ended_within(CANCEL_S, session.sparkContext.cancelAllJobs)
            except Exception as error:
                log.debug("cancelling jobs: %s", error)

    def drop_state(self) -> bool:
        self._drops = True
        return self._own

    def _close_functions(self) -> None:
        if self._session is None or self._job is None:
            return
        try:
            closing = CloseFunctions(self._digest, self._job.local_dir, self._job.job, self._drops)
            with self._on_spark("the job that closes functions"):
                self._bridge.collect(self._bridge.stage(self._bridge.start, closing, first=True))
        except Exception as error:
            log.debug("closing functions: %s", error)

    def extras(self) -> dict[str, Any]:
        return {"spark": self.session}

    def _prepare(self) -> None:
        job = self._job
        assert job is not None
        session = self.session()
        context = session.sparkContext
        with self._on_spark("the jobs that prepare the session", context):
            self._bridge = Bridge(context, job.parallelism)
            large = len(self._job_bytes) > _BROADCAST_ABOVE
            self._shipped: Any = self._bridge.broadcast(self._job_bytes) if large else self._job_bytes
            self._anchor = self._make_anchor() if is_cluster(session) else None

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
        except (PenstockError, Py4JError, ConnectionError, EOFError, RuntimeError) as error:
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
        last = len(job.stages) - 1
        for stage in range(last):
            function = StageFunction(self._digest, self._shipped, data, key, stage, False)
            shuffled = bridge.shuffled(bridge.stage(rdd, function, first=stage == 0))
            rdd = (shuffled if self._anchor is None else self._anchor.union(shuffled)).rdd()
        final = bridge.stage(rdd, StageFunction(self._digest, self._shipped, data, key, last, True), first=last == 0)
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
    if not isinstance(error, Py4JJavaError):
        return ExecutorLostError(f"the Spark session is gone: {type(error).__name__}: {error}")
    text = str(error.java_exception.toString()) if error.java_exception is not None else str(error)
    if "SparkContext was shut down" in text or "stopped SparkContext" in text or "No active SparkContext" in text:
        return ExecutorLostError("the Spark session was shut down", detail=text[:2000])
    return EpochFailedError("a Spark job failed", detail=_interesting(text))


def _interesting(text: str) -> str:
    """The lines of a Spark failure that say what happened."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join(lines[:40])[:4000]

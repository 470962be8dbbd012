"""The Spark executor: an epoch is one job of RDD stages.

Between two stages frames travel through Spark's own shuffle as raw bytes. On a cluster a cached, empty *anchor* is united
with every shuffled stage: it makes a partition prefer the executor that had it before, where its store is.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession

from penstock.errors import EpochFailedError, ExecutorLostError
from penstock.executors.spark.bridge import Bridge
from penstock.executors.spark.session import forget_session, is_cluster, make_session
from penstock.executors.spark.worker import CloseFunctions, StageFunction, nothing
from penstock.failpoints import fail_point
from penstock.runtime.job import CompiledJob
from penstock.runtime.orders import EpochOrder, TaskReport, decode_reports, encode_order

_BROADCAST_ABOVE = 64 * 1024


class SparkExecutor:
    """Runs epochs on a Spark session of its own, or on one it was given."""

    def __init__(self, name: str, master: str | None, config: dict[str, str], session: SparkSession | None = None) -> None:
        self._name = name
        self._master = master
        self._config = config
        self._given = session
        self._own = False
        self._session: SparkSession | None = session
        self._job: CompiledJob | None = None

    # --- life --------------------------------------------------------------------------------------------------------------

    def session(self) -> SparkSession:
        """The session, made when first needed."""
        if self._session is None:
            running = SparkSession.getActiveSession()
            self._session = make_session(self._name, self._master, self._config)
            self._own = running is None
        return self._session

    def prepare(self, parallelism: int) -> None:
        """The session, and Python workers that have loaded what tasks need."""
        try:
            bridge = Bridge(self.session().sparkContext, parallelism)
            bridge.collect(bridge.stage(bridge.start, nothing, first=True))
        except (Py4JError, ConnectionError, EOFError, RuntimeError) as error:
            logging.getLogger("penstock").warning("the Spark session was lost while standing by: %s", error)
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
                hint="make a new session and start the job again; without spark= Penstock restarts its own",
            )
        forget_session()
        self._session = None
        self._prepare()

    def close(self) -> None:
        self._close_functions()
        if self._own and self._session is not None:
            try:
                self._session.stop()
            except Exception:
                forget_session()
        self._session = None

    def _close_functions(self) -> None:
        if self._session is None or self._job is None:
            return
        try:
            self._bridge.collect(self._bridge.stage(self._bridge.start, CloseFunctions(self._digest), first=True))
        except Exception as error:
            logging.getLogger("penstock").debug("closing functions: %s", error)

    def extras(self) -> dict[str, Any]:
        return {"spark": self.session}

    def _prepare(self) -> None:
        job = self._job
        assert job is not None
        session = self.session()
        context = session.sparkContext
        self._context = context
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

    # --- an epoch ----------------------------------------------------------------------------------------------------------

    def run(self, order: EpochOrder) -> list[TaskReport]:
        fail_point("epoch:submit")
        try:
            return self._run(order)
        except Py4JJavaError as error:
            raise self._failure(error) from error
        except (Py4JNetworkError, Py4JError, ConnectionError, EOFError) as error:
            raise ExecutorLostError(f"the Spark session is gone: {type(error).__name__}: {error}") from error
        except RuntimeError as error:
            raise ExecutorLostError(f"the Spark session does not answer: {error}") from error

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
        self._bridge.collect(self._bridge.stage(self._bridge.start, nothing, first=True))

    def _failure(self, error: Py4JJavaError) -> EpochFailedError:
        text = str(error.java_exception.toString()) if error.java_exception is not None else str(error)
        if "SparkContext was shut down" in text or "stopped SparkContext" in text or "No active SparkContext" in text:
            return ExecutorLostError("the Spark session was shut down", detail=text[:2000])
        return EpochFailedError("a Spark job failed", detail=_interesting(text))


def _interesting(text: str) -> str:
    """The lines of a Spark failure that say what happened."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join(lines[:40])[:4000]

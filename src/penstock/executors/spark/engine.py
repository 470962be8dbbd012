"""Spark as its watch sees it: what the scheduler knows, and how to end what is waited for. See `watch`."""

from __future__ import annotations

import logging
import socket
from typing import Any

from pyspark import SparkContext

from penstock.executors.spark.session import kill_java
from penstock.executors.spark.watch import Sight

log = logging.getLogger("penstock")

TAG = "penstock"
"""On the jobs that run in a session that was given: the others in it are not ours to cancel."""


class SparkEngine:
    """One Spark context after another. `own`: it was made here, and its JVM may be ended."""

    def __init__(self, *, own: bool) -> None:
        self._own = own
        self._context: SparkContext | None = None
        self._scheduler: Any = None
        self._releases = False
        """Executors come and go as they are needed."""
        self._connection: Any = None
        self.worked = False
        """The context has run a job: it had executors."""

    def use(self, context: SparkContext | None) -> None:
        """A new context; None: there will be one."""
        if context is self._context:
            return
        self._context, self._scheduler, self.worked = context, None, False
        if context is not None:
            self._releases = context._conf.get("spark.dynamicAllocation.enabled") == "true"  # getConf() copies, a call for each
            if not self._own:
                context.addJobTag(TAG)

    def leave(self) -> None:
        """Nothing more is done in this context by us."""
        if self._context is not None and not self._own:
            self._context.removeJobTag(TAG)

    def waiting(self) -> None:
        """This thread is about to wait for the JVM."""
        if not self._own:
            gateway: Any = SparkContext._gateway
            self._connection = gateway._gateway_client.get_thread_connection()

    def look(self) -> Sight | None:
        context = self._context
        if context is None:
            return None
        if self._scheduler is None:
            java: Any = context._jsc
            self._scheduler = java.sc().taskScheduler()
        tasks = [text.rpartition(" ")[2] for text in self._scheduler.runningTasksByExecutors().mkString(",").split(",") if text]
        return Sight(len(tasks), sum(map(int, tasks)), lost=self.worked and not self._releases)

    def cancel(self) -> None:
        if self._context is None:
            return
        if self._own:
            self._context.cancelAllJobs()
        else:
            self._context.cancelJobsWithTag(TAG)

    def cut(self) -> None:
        if self._own:
            kill_java()
        elif self._connection is not None and self._connection.socket is not None:
            try:
                self._connection.socket.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                log.debug("cutting the connection to the JVM: %s", error)

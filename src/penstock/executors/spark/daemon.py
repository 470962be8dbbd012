"""The process that Spark forks its Python workers from, with all that tasks need imported once.

A worker of PySpark's own daemon imports Penstock when its first task is there: most of a second for each, and again after each
worker that is killed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pyspark.daemon

import penstock.executors.spark.worker  # noqa: F401 - for those who are forked from here

Worker = Callable[[socket.socket, bool], int]


def without_a_word(worker: Worker) -> Worker:
    """A worker whose JVM has closed the connection ends. PySpark's prints a traceback first, onto the terminal of a job that was
    stopped in good order."""

    def work(connection: socket.socket, authenticated: bool) -> int:
        try:
            return worker(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(1)

    return work


if __name__ == "__main__":
    pyspark.daemon.worker = without_a_word(pyspark.daemon.worker)  # type: ignore[assignment]
    pyspark.daemon.manager()

"""The Spark session of a job: made with what epochs need, found again, or made anew after it was lost."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark.core.context
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from penstock.deadlines import ended_within
from penstock.executors.spark.class_archive import archive_options
from penstock.executors.spark.java import ensure_java_home
from penstock.executors.spark.loopback import loopback, machine_settings
from penstock.executors.spark.losses import quick_losses
from penstock.executors.spark.master import default_master, is_local
from penstock.executors.spark.starting import check_scripts, not_started

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.shuffle.compress": "false",
    "spark.broadcast.compress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "500",
    "spark.ui.retainedDeadExecutors": "5",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.worker.ui.retainedExecutors": "5",
    "spark.sql.session.timeZone": "UTC",
}
"""Small retained histories: nothing grows with the number of epochs."""

_JIT = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Java's optimizing compiler waits ten times as long as it would. It takes the cores that the Python workers need, for minutes,
to make code faster that only passes bytes on."""

STOP_S, LEAVE_S = 10.0, 3.0
"""A session has so long to stop, and its JVM to end by itself, before it is killed."""

log = logging.getLogger("penstock")

_LOGGING = Path(__file__).with_name("log4j2.properties")


def running_context() -> SparkContext | None:
    """The context that is running in this process."""
    context: Any = SparkContext._active_spark_context
    try:
        stopped = context is None or context._jsc is None or context._jsc.sc().isStopped()
    except (Py4JError, OSError):  # its JVM is gone
        stopped = True
    return None if stopped else context


def make_context(name: str, master: str | None, config: Mapping[str, str], *, record: bool = False) -> SparkContext:
    """A context, without the session around it: SQL's classes take as long to load as all the rest, and epochs need none of them.

    One that is running already is used as it is. `record`: its Java makes the class archive, if there is none."""
    running = running_context()
    if running is not None:
        return running
    spark_home = check_scripts()
    java_home = ensure_java_home().path
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = master or default_master()
    java = _java_options(config, archive_options(java_home, spark_home, record=record))
    closed = loopback(master, config, spark_home)
    losses = quick_losses(master, {*config, *machine_settings(spark_home)})
    settings = {**SETTINGS, **_executor_environment(), **_daemon(master), **losses, **closed, **java, **config}
    conf = SparkConf().setAppName(f"penstock: {name}").setMaster(master)
    for key, value in settings.items():
        if not key.startswith("penstock."):  # ours: Spark would complain of it
            conf.set(key, value)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    logging.getLogger().addFilter(_not_raised_anyway)  # once, however often
    # For good: to set filters back later is not safe beside other threads.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    try:
        with _ctrl_c_stays():
            context = SparkContext.getOrCreate(conf)
    except Exception as error:
        raise not_started(error, master) from error
    context.setLogLevel(config.get("penstock.spark.log", "ERROR"))
    return context


def session_of(context: SparkContext) -> SparkSession:
    """The session around the running context."""
    session = SparkSession.getActiveSession()
    return session if session is not None else SparkSession.builder.config(conf=context.getConf()).getOrCreate()


def make_session(name: str, master: str | None, config: Mapping[str, str], *, record: bool = False) -> SparkSession:
    """A session; likewise."""
    return session_of(make_context(name, master, config, record=record))


def _not_raised_anyway(record: logging.LogRecord) -> bool:
    """py4j logs, with its traceback and as the root of all loggers, that the JVM is gone; and raises it."""
    return not (record.module == "java_gateway" and record.msg == "Exception while sending command.")


@contextmanager
def _ctrl_c_stays() -> Iterator[None]:
    """A SparkContext that is made in the main thread takes Ctrl-C: it would cancel all jobs, by a call to the JVM in the middle
    of another, and raise. Whoever had it before keeps it, without a moment in between."""
    theirs: Any = pyspark.core.context
    before = theirs.signal
    theirs.signal = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda number, handler: None)
    try:
        yield
    finally:
        theirs.signal = before


def _java_options(config: Mapping[str, str], archive: str) -> dict[str, str]:
    """The driver's JVM compiles as we say, and logs so from its first line on, unless the user has a say in it."""
    if "SPARK_CONF_DIR" in os.environ:
        return {}
    ours = f"{_JIT} {archive}".strip()
    options = {"spark.driver.defaultJavaOptions": ours}  # what the user gives as extraJavaOptions comes after it, and wins
    name = "spark.driver.extraJavaOptions"
    if name not in config and _LOGGING.is_file():
        options[name] = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    return options


def _daemon(master: str) -> dict[str, str]:
    """Workers here are forked from a process that has imported Penstock. On a cluster Penstock may come with the job."""
    return {"spark.python.daemon.module": "penstock.executors.spark.daemon"} if is_local(master) else {}


def is_cluster(context: SparkContext) -> bool:
    return not is_local(context.master or "")


def forget_session() -> None:
    """Let go of a session that is lost, so that a new one can be made. Its JVM may be gone, or hang: it is ended in any case."""
    context = SparkContext._active_spark_context
    java = getattr(context, "_jsc", None)
    if java is not None and is_java_alive():
        try:
            if ended_within(STOP_S, java.stop, "penstock-spark-stop"):
                _leave_java()
            else:
                log.debug("the lost session did not stop in %g s", STOP_S)
        except Exception as error:
            log.debug("stopping a lost session: %s", error)
    gateway = SparkContext._gateway
    kill_session()
    accumulators: Any = getattr(context, "_accumulatorServer", None)
    if accumulators is not None:
        accumulators.shutdown()
    if gateway is not None:
        try:
            gateway.shutdown()  # closes our side: the other one is gone
        except Exception as error:
            log.debug("closing a lost gateway: %s", error)


def _leave_java() -> None:
    """Have the JVM of a stopped session end by itself: it removes its temporary folders then."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.terminate()
        process.wait(LEAVE_S)


def is_java_alive() -> bool:
    """Does the JVM run? One that was not started from here is taken to."""
    process = getattr(SparkContext._gateway, "proc", None)
    return process is None or process.poll() is None


def kill_java() -> None:
    """End the JVM, if it was started from here, and leave the session to whoever uses it. From any thread."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


def end_session(timeout_s: float = 60.0) -> None:
    """Have the JVM of a stopped session end by itself, with what it does then, and wait for it."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is not None and process is not None:
        gateway.shutdown()
        process.stdin.close()
        process.wait(timeout_s)


def kill_session() -> None:
    """End the JVM of the running session, if it was started from here, whatever it does."""
    accumulators: Any = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if accumulators is not None:
        accumulators.handle_error = _say_nothing  # of the connection that is lost with the JVM
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is None:
        process.kill()
        process.wait()
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    if hasattr(SparkSession, "_activeSession"):
        SparkSession._activeSession = None


def _say_nothing(request: object, address: object) -> None:
    pass


def _executor_environment() -> dict[str, str]:
    names = [name for name in os.environ if name.startswith(("PENSTOCK_", "AWS_"))]
    settings = {f"spark.executorEnv.{name}": os.environ[name] for name in names}
    if "PYTHONPATH" in os.environ:
        settings["spark.executorEnv.PYTHONPATH"] = os.environ["PYTHONPATH"]
    settings["spark.pyspark.python"] = os.environ["PYSPARK_PYTHON"]
    return settings

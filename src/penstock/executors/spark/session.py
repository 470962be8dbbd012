"""The Spark session of a job: made with what epochs need, found again, or made anew after it was lost."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import EnvironmentProblemError
from penstock.executors.spark.java import ensure_java_home

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

_LOGGING = Path(__file__).with_name("log4j2.properties")


def make_session(name: str, master: str | None, config: Mapping[str, str]) -> SparkSession:
    """A session; one that is running already is used as it is."""
    active = SparkSession.getActiveSession()
    if active is not None and not active.sparkContext._jsc.sc().isStopped():
        return active
    ensure_java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"penstock: {name}").master(master or default_master())
    for key, value in {**SETTINGS, **_executor_environment(), **_java_options(config), **config}.items():
        if not key.startswith("penstock."):  # ours: Spark would complain of it
            builder = builder.config(key, value)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            session = builder.getOrCreate()
    except Exception as error:
        raise EnvironmentProblemError(
            f"Spark did not start: {type(error).__name__}: {error}",
            hint="`penstock doctor` checks Java, Python and Spark and says what to fix",
        ) from error
    session.sparkContext.setLogLevel(config.get("penstock.spark.log", "ERROR"))
    return session


def _java_options(config: Mapping[str, str]) -> dict[str, str]:
    """The driver's JVM compiles as we say, and logs so from its first line on, unless the user has a say in it."""
    if "SPARK_CONF_DIR" in os.environ:
        return {}
    options = {"spark.driver.defaultJavaOptions": _JIT}  # what the user gives as extraJavaOptions comes after it, and wins
    name = "spark.driver.extraJavaOptions"
    if name not in config and _LOGGING.is_file():
        options[name] = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    return options


def default_master() -> str:
    """All cores, and four attempts for each task: plain `local` never tries again."""
    return os.environ.get("PENSTOCK_MASTER") or "local[*,4]"


def is_cluster(session: SparkSession) -> bool:
    master = session.sparkContext.master or ""
    return not (master == "local" or master.startswith("local["))


def forget_session() -> None:
    """Let go of a session whose JVM is gone, so that a new one can be made."""
    context = SparkContext._active_spark_context
    gateway = SparkContext._gateway
    if context is not None:
        try:
            context.stop()
        except Exception as error:
            logging.getLogger("penstock").debug("stopping a lost session: %s", error)
    if gateway is not None:
        try:
            gateway.shutdown()
        except Exception as error:
            logging.getLogger("penstock").debug("closing a lost gateway: %s", error)
        process = getattr(gateway, "proc", None)
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    if hasattr(SparkSession, "_activeSession"):
        SparkSession._activeSession = None


def _executor_environment() -> dict[str, str]:
    names = [name for name in os.environ if name.startswith(("PENSTOCK_", "AWS_"))]
    settings = {f"spark.executorEnv.{name}": os.environ[name] for name in names}
    if "PYTHONPATH" in os.environ:
        settings["spark.executorEnv.PYTHONPATH"] = os.environ["PYTHONPATH"]
    settings["spark.pyspark.python"] = os.environ["PYSPARK_PYTHON"]
    return settings

"""What keeps Spark from starting, and what to do about it. Every hint leads out: none sends a person in a circle."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from penstock.errors import EnvironmentProblemError

SCRIPT_NEEDS = ("bash", "dirname")
"""What Spark's start scripts call by name."""

WITHOUT = "--executor inline runs the job without Spark"

_KNOWN = (
    (
        r"UnknownHostException|Name or service not known|name resolution|Can't assign requested address|BindException",
        "this host's name does not lead to an address of its own: set SPARK_LOCAL_IP=127.0.0.1, or mend /etc/hosts",
    ),
    (
        r"All masters are unresponsive|Failed to connect to master|Master removed our application",
        "no Spark master answers at {master}: compare with the address on the master's web page; is its port open from here?",
    ),
    (r"Could not parse Master URL", "{master} is no master: use local[4,4], spark://host:7077, yarn or k8s://…"),
    (r"UnsupportedClassVersionError", "this Java is too old for Spark: install Java 17 or later and set JAVA_HOME to it"),
    (
        r"OutOfMemoryError|Could not reserve enough space|insufficient memory|Cannot allocate memory",
        'there is too little memory for Spark: free some, or give it less with spark_config={{"spark.driver.memory": "512m"}}',
    ),
    (r"No space left on device", "the disk is full: make room in the temporary folder, or set SPARK_LOCAL_DIRS to another one"),
)


def check_scripts() -> str:
    """Where Spark is; an error if its start scripts cannot run here."""
    missing = [name for name in SCRIPT_NEEDS if shutil.which(name) is None]
    if missing:
        raise EnvironmentProblemError(
            f"Spark's start scripts need {' and '.join(missing)}, and there is no {missing[0]} on the PATH",
            detail=f"PATH={os.environ.get('PATH', '')}",
            hint=f"add its folder to the PATH, usually /usr/bin or /bin, or install {missing[0]}; {WITHOUT}",
        )
    home = os.environ.get("SPARK_HOME")
    if home is not None:
        _check_home(home)
        return home
    found = find_spec("pyspark")
    home = os.path.dirname(found.origin) if found is not None and found.origin is not None else ""
    if not os.path.isfile(os.path.join(home, "bin", "spark-submit")):
        raise EnvironmentProblemError(
            "the package pyspark is not installed, or only in part",
            detail=f"looked in {home or sys.prefix}",
            hint=f"{sys.executable} -m pip install --force-reinstall '{requirement('pyspark')}'; {WITHOUT}",
        )
    return home


def _check_home(home: str) -> None:
    if not os.path.isfile(os.path.join(home, "bin", "spark-submit")):
        raise EnvironmentProblemError(
            f"SPARK_HOME is {home}, where there is no bin/spark-submit",
            hint="unset SPARK_HOME, as pyspark has a Spark of its own; or set it to the folder that Spark was unpacked to",
        )
    jars = glob.glob(os.path.join(home, "jars", "spark-core_*.jar"))
    of_home = re.search(r"spark-core_[\d.]+-(\d+\.\d+)", jars[0]) if jars else None
    try:
        ours = ".".join(version("pyspark").split(".")[:2])
    except PackageNotFoundError:
        return
    if of_home is not None and of_home[1] != ours:
        raise EnvironmentProblemError(
            f"SPARK_HOME is a Spark {of_home[1]}, and the package pyspark is {ours}",
            detail=f"SPARK_HOME={home}",
            hint="unset SPARK_HOME, or install the pyspark of the same version",
        )


def not_started(error: Exception, master: str) -> EnvironmentProblemError:
    """The error to raise when Spark did not start."""
    text = f"{type(error).__name__}: {error}"
    said = _ask_launcher() if "JAVA_GATEWAY_EXITED" in text or "gateway process exited" in text.lower() else ""
    what, _, rest = text.partition("\n")
    what = f"Spark did not start: {what}"
    hint = 'spark_config={{"penstock.spark.log": "INFO"}} shows what Spark says while it starts; ' + WITHOUT
    if said:
        what, rest = "Spark did not start: its Java ended at once", said
        hint = f"set JAVA_HOME to a Java 17 or later that starts (now {os.environ.get('JAVA_HOME', 'not set')}); {WITHOUT}"
    known = [remedy for pattern, remedy in _KNOWN if re.search(pattern, f"{text}\n{said}")]
    hint = known[0] if known else hint
    return EnvironmentProblemError(what, detail="\n".join(rest.strip().splitlines()[:20])[:2000], hint=hint.format(master=master))


def _ask_launcher() -> str:
    """What Spark's launcher prints when it is only asked for its version, if even that fails."""
    try:
        script = os.path.join(check_scripts(), "bin", "spark-submit")
        done = subprocess.run(
            [script, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired, EnvironmentProblemError) as error:
        return str(error)
    return (done.stdout + done.stderr).strip() if done.returncode else ""


def requirement(package: str) -> str:
    """The package with the versions that Penstock needs, as pip wants it."""
    try:
        for line in requires("penstock") or ():
            if re.match(rf"{re.escape(package)}\b", line) and "extra ==" not in line:
                return line.partition(";")[0].strip()
    except PackageNotFoundError:
        pass
    return package

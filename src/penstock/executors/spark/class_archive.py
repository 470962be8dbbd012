"""Spark's classes, as Java keeps them for the next start (class data sharing).

Most of the processor time that Spark takes to start goes into loading some ten thousand classes. Java can write those that a
process has loaded into an archive when it ends, and map it into memory when another one starts, in half the time.
Java checks an archive against its own version and against the jars, and does without one that does not fit.

Only with `PENSTOCK_CLASS_ARCHIVE=on`, for tests, which start Spark a hundred times: a job that runs for longer is slower with it.
A keyed function takes 1.2 to 1.4 times as long, measured in turns. To record takes a start half as long again, so only
`penstock doctor` does it, into the user's cache.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from pathlib import Path

from penstock.executors.spark.java import cache_folder

log = logging.getLogger("penstock")

_ABANDONED_S = 24 * 3600
"""What a Java that was killed has left behind is removed after this time."""

_SILENT = "-Xlog:disable -Xlog:all=error:stderr -Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_options(java_home: str, spark_home: str, *, record: bool) -> str:
    """Java's options that use the archive; or, if there is none yet, that have it written when this Java ends (`record`)."""
    if os.environ.get("PENSTOCK_CLASS_ARCHIVE", "").lower() not in ("on", "1", "yes"):
        return ""
    try:
        archive = _archive(java_home, spark_home)
        if not archive.exists():
            _adopt(archive)
        if archive.exists():
            return f"-XX:SharedArchiveFile={archive} {_SILENT}"
        if record:
            archive.parent.mkdir(parents=True, exist_ok=True)
            return f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()} {_SILENT}"
    except OSError as error:
        log.debug("no class archive: %s", error)
    return ""


def _adopt(archive: Path) -> None:
    """Use an archive that a Java has finished writing, and remove what one that was killed has left."""
    for written in archive.parent.glob(f"{archive.name}.*"):
        if _is_whole(written):
            written.rename(archive)
            return
        if time.time() - written.stat().st_mtime > _ABANDONED_S:
            written.unlink(missing_ok=True)


def _is_whole(written: Path) -> bool:
    """Java writes the beginning of the file last."""
    with open(written, "rb") as file:
        return any(file.read(4))


def _archive(java_home: str, spark_home: str) -> Path:
    """Named after all that decides whether it fits."""
    digest = hashlib.sha256()
    for name in ("release", ".penstock-launcher"):
        file = Path(java_home, name)
        digest.update(file.read_bytes() if file.exists() else b"")
    digest.update(os.path.realpath(java_home).encode())
    digest.update(os.environ.get("SPARK_DIST_CLASSPATH", "").encode())
    for entry in sorted(os.scandir(os.path.join(spark_home, "jars")), key=lambda entry: entry.name):
        found = entry.stat()
        digest.update(f"{entry.path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return Path(cache_folder(), f"spark-classes-{digest.hexdigest()[:16]}.jsa")

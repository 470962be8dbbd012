"""A file feed that is pointed at another folder than before, seen before its query is started.

Spark itself fails only in the batch, in Java, when it looks for the old files; or it reads copies of them as if they were
new. The files that were read are named by the query's checkpoint, the folder to read by its plan. Other feeds, and checkpoints
that are not in a local folder, are not looked at.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.errors import ConfigError
from penstock.ids import StepId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOLDER = re.compile(r"FileSource\[([^\]]*)\]")
_GLOB = re.compile(r"[*?\[{]")
ENTRIES = 1000
"""How many of the files that were read last are looked at."""


def check_folder(step: StepId, frame: DataFrame, checkpoint: str) -> None:
    """`ConfigError` if none of the files that the query has read is where the source reads now."""
    now = file_folder(frame)
    if now is None:
        return
    read = files_read(checkpoint)
    if read and not any(file == now or file.startswith(f"{now.rstrip('/')}/") for file in read):
        raise folder_changed(step, old_folder(read), now)


def file_folder(frame: DataFrame) -> str | None:
    """The folder that a streaming DataFrame reads files of; None if there is not exactly one."""
    found = set(_FOLDER.findall(str(frame._jdf.queryExecution().analyzed().toString())))
    return plain(found.pop()) if len(found) == 1 else None


def plain(folder: str) -> str:
    """A folder or file as the checkpoint would name it: absolute, decoded, without `file:` and what follows a wildcard."""
    if folder.startswith("file:"):
        folder = "/" + unquote(folder.removeprefix("file:")).lstrip("/")
    if (glob := _GLOB.search(folder)) is not None:
        folder = folder[: glob.start()].rpartition("/")[0] or "/"
    return folder if "://" in folder else os.path.abspath(folder)


def files_read(checkpoint: str) -> list[str]:
    """The files that the query's only source has read last, as its checkpoint says; none if that cannot be read."""
    folder = os.path.join(checkpoint.removeprefix("file://"), "sources")
    try:
        if os.listdir(folder) != ["0"]:
            return []
        names = [name for name in os.listdir(os.path.join(folder, "0")) if name.partition(".")[0].isdigit()]
        newest = max(names, key=lambda name: int(name.partition(".")[0]))
        with open(os.path.join(folder, "0", newest), encoding="utf-8") as file:
            lines = file.read().splitlines()[1:]
        return [plain(_escaped(str(json.loads(line)["path"]))) for line in lines[-ENTRIES:]]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _escaped(path: str) -> str:
    """A file's name is no pattern."""
    return _GLOB.sub(lambda found: f"%{ord(found[0]):02X}", path)


def old_folder(read: list[str]) -> str:
    folders = [file.rpartition("/")[0] for file in read]
    return folders[-1] if "://" in folders[-1] else os.path.commonpath(folders)


def folder_changed(step: StepId, old: str, now: str) -> ConfigError:
    return ConfigError(
        f"the source {step!r} reads {now}, and has read {old} until now",
        detail="Spark's checkpoint of the query knows only the files of the old folder",
        hint="give the source its old path; or give the step another name, which reads all files of the new folder",
    )


def folder_missing(step: StepId, folder: str, checkpoint: str) -> ConfigError:
    """Spark says that there is nothing where a source is to read."""
    read = files_read(checkpoint)
    before = f"; it has read {old_folder(read)} until now" if read else ""
    return ConfigError(
        f"the source {step!r} reads {folder}, which does not exist{before}",
        hint="make the folder, or give the source " + ("its old path" if read else "the right path"),
    )

"""Where the files of a `FileSink` are, and what their names say.

    _log/owner.json                                              the job and the sink that may publish here
    _log/%020d.json                                              what was published: entry 1, 2, 3, …
    data/<folder>/part-<epoch>-<partition>-<number>-<attempt>.<ext>
    published/<folder>/…                                         tidy copies, if asked for

A data file is part of the output only when a log entry names it: the attempt in its name tells when it may be swept.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote, unquote

from penstock.errors import CorruptFileError
from penstock.ids import Epoch
from penstock.storage.protocol import is_plain_path

DATA = "data"
LOG = "_log"
PUBLISHED = "published"
OWNER = f"{LOG}/owner.json"

_LONGEST = 180
_ENTRY = re.compile(rf"{LOG}/([0-9]{{20}})\.json")
_PART = re.compile(r"part-[0-9]+-[0-9]+-[0-9]+-(.+)\.(?:jsonl|csv|txt|parquet)(?:\.(?:gz|zst))?")


def entry_path(sequence: int) -> str:
    return f"{LOG}/{sequence:020d}.json"


def entry_sequence(path: str) -> int | None:
    match = _ENTRY.fullmatch(path)
    return int(match[1]) if match else None


def part_path(folder: str, epoch: Epoch, partition: int, number: int, attempt: str, extension: str) -> str:
    name = f"part-{epoch:010d}-{partition:05d}-{number:04d}-{safe(attempt)}.{extension}"
    return f"{DATA}/{folder}/{name}" if folder else f"{DATA}/{name}"


def part_attempt(path: str) -> str | None:
    """The attempt that wrote a data file; None if the name is not one of ours."""
    match = _PART.fullmatch(path.rpartition("/")[2])
    return unquote(match[1]) if match else None


def check_data_path(path: str, where: str) -> None:
    """Logs and manifests name data files, which are read, linked and removed: nothing else may be named."""
    if not path.startswith(f"{DATA}/") or not is_plain_path(path):
        raise CorruptFileError(
            f"{where} names a file that no sink has written: {path!r}",
            hint="it was not written by Penstock: find out who can write there",
        )


def safe(text: str) -> str:
    """A name that every file system takes and that cannot leave its folder.

    >>> safe("a b/c"), safe("..")
    ('a%20b%2Fc', '%2E.')
    """
    name = quote(text, safe="=", errors="surrogatepass").replace("~", "%7E")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _LONGEST:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        name = f"{name[:_LONGEST]}-{digest}"
    return name


def folder_of(text: str) -> str:
    """Where a user's partition function sends a record: each part between slashes made safe.

    >>> folder_of("2024/05/../x y")
    '2024/05/%2E./x%20y'
    """
    return "/".join(safe(part) for part in text.split("/") if part)


def column_folder(name: str, value: object) -> str:
    """As Hive and Spark name it.

    >>> column_folder("room", "a/b"), column_folder("room", None)
    ('room=a%2Fb', 'room=__HIVE_DEFAULT_PARTITION__')
    """
    return safe(f"{name}={'__HIVE_DEFAULT_PARTITION__' if value is None else value}")

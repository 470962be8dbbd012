"""The log of published files, as it is stored: the one truth about what a `FileSink` has written.

Entries have numbers, 1, 2, 3, without gaps, and are never changed. Each says what the log shows after it (`view`), so that a
reader needs the newest entry, and then those that it names. Formats: 1, from before output could be taken back, and 2, which
carries its view and a checksum of itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Literal

import msgspec

from penstock.connectors.files.writing.log_view import Runs, View, everything, numbers
from penstock.connectors.files.writing.names import LOG, check_data_path, entry_path, entry_sequence
from penstock.errors import CorruptFileError, NotFoundError
from penstock.storage import Storage
from penstock.storage.documents import MANIFEST_BYTES, UNREADABLE, read_small
from penstock.storage.sealed import body_of, seal

VERSION = 2
OWNER_VERSION = 1

EntryKind = Literal["publish", "back", "repair", "switch"]


class PublishedFile(msgspec.Struct, frozen=True):
    """A file of the output; `path` is relative to the sink's folder, `checksum` is its CRC-32."""

    path: str
    rows: int
    bytes: int
    checksum: str | None = None


class LogEntry(msgspec.Struct, frozen=True):
    """What one epoch published; or that output was taken back (`to`: the epoch gone back to), or replaced.

    `shown` and `held`: the view after this entry.
    """

    version: int
    epoch: int
    job: str
    sink: str
    files: tuple[PublishedFile, ...] = ()
    kind: EntryKind = "publish"
    to: int | None = None
    created_ms: int = 0
    shown: Runs | None = None
    held: Runs | None = None
    number: int = 0
    """Its place in the log; 0 in entries from before they carried it."""

    @property
    def order(self) -> tuple[int, int]:
        """Grows along the log. An epoch that publishes and then ends a repair has two entries."""
        return self.epoch, int(self.kind == "switch")

    def says_the_same(self, other: LogEntry) -> bool:
        return self.order == other.order and self.kind == other.kind and set(self.files) == set(other.files)


class Owner(msgspec.Struct, frozen=True):
    """Who may publish in a folder."""

    version: int
    job: str
    sink: str
    job_name: str = ""


def view_after(number: int, entry: LogEntry | None) -> View:
    """What the log shows after an entry (None: before the first)."""
    if entry is None or entry.shown is None:
        return everything(number)
    return View(entry.shown, entry.held)


def encode_entry(entry: LogEntry) -> bytes:
    return seal(entry)


def decode_entry(data: bytes, path: str, number: int | None = None) -> LogEntry:
    """An entry, checked; `path` is what messages call it, `number` its place in the log if known."""
    body = body_of(data)
    if body is None:
        raise CorruptFileError(f"the log entry {path} is damaged", detail="its checksum does not match")
    try:
        entry = msgspec.json.decode(body, type=LogEntry)
    except UNREADABLE as error:
        raise CorruptFileError(f"the log entry {path} cannot be read", detail=str(error)) from error
    if entry.version not in (1, VERSION):
        raise CorruptFileError(
            f"the log entry {path} has version {entry.version}", hint=f"this Penstock knows version {VERSION}: upgrade it"
        )
    for file in entry.files:
        check_data_path(file.path, f"the log entry {path}")
    if entry.version == VERSION and body is data:
        raise CorruptFileError(f"the log entry {path} is damaged", detail="its checksum is missing")
    if number is not None and entry.number not in (0, number):
        raise CorruptFileError(f"the log entry {path} is number {entry.number}: files were mixed up")
    return entry


def read_entry(storage: Storage, number: int) -> LogEntry:
    path = entry_path(number)
    return decode_entry(read_small(storage, path, MANIFEST_BYTES), f"{storage.uri}/{path}", number)


def read_entries(storage: Storage, after: int = 0) -> Iterator[tuple[int, LogEntry]]:
    """All entries after a known one, with their numbers, as far as the log goes now; also those that are not shown."""
    number = after
    while True:
        number += 1
        try:
            entry = read_entry(storage, number)
        except NotFoundError:
            return
        yield number, entry


def newest_entry(storage: Storage) -> tuple[int, LogEntry | None]:
    """The number of the newest entry, and the entry; (0, None) when there is none."""
    last = 0
    for listed in storage.list(LOG):
        last = max(last, entry_sequence(listed.path) or 0)
    return last, None if last == 0 else read_entry(storage, last)


def shown_entries(storage: Storage) -> Iterator[tuple[int, LogEntry]]:
    """The entries whose files are the output now, oldest first."""
    last, newest = newest_entry(storage)
    for number in numbers(view_after(last, newest).shown):
        entry = read_entry(storage, number)
        if newest is not None and (entry.job, entry.sink) != (newest.job, newest.sink):
            raise CorruptFileError(
                f"the log entries {entry_path(number)} and {entry_path(last)} in {storage.uri} are of two jobs or sinks",
                detail=f"{entry.job}, {entry.sink}\n{newest.job}, {newest.sink}",
                hint="files were mixed up: restore the right one from a backup",
            )
        yield number, entry


def read_file(storage: Storage, file: PublishedFile) -> bytes:
    """A published file, checked."""
    data = storage.read(file.path)
    if len(data) != file.bytes or (file.checksum is not None and f"{zlib.crc32(data):08x}" != file.checksum):
        raise CorruptFileError(
            f"the published file {storage.uri}/{file.path} is damaged",
            detail=f"{len(data)} bytes, CRC-32 {zlib.crc32(data):08x}; the log says {file.bytes} and {file.checksum}",
        )
    return data

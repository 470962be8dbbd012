"""The log of published files: the one truth about what a `FileSink` has written.

- Entry k+1 is created exclusively, and only by somebody who has read entry k: the log is a chain of compare-and-sets. A driver
  that wakes up late finds its place taken, reads on, and either finds its own epoch published (by whoever took over, from the
  same staged files) or learns that later epochs have gone past it, and publishes nothing.
- Epochs grow along the log; an epoch without output has no entry. So entries have numbers of their own, 1, 2, 3, and a reader
  finds the next one without listing.
- A folder has one owner, (job, sink), forever.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock.connectors.files.output.names import LOG, OWNER, entry_path, entry_sequence
from penstock.errors import CorruptFileError, NotFoundError, SinkError, StorageError
from penstock.ids import Epoch, JobId, StepId
from penstock.storage import Storage

VERSION = 1


class PublishedFile(msgspec.Struct, frozen=True):
    """A file of the output; `path` is relative to the sink's folder, `checksum` is its CRC-32."""

    path: str
    rows: int
    bytes: int
    checksum: str | None = None


class LogEntry(msgspec.Struct, frozen=True):
    """What one epoch published."""

    version: int
    epoch: int
    job: str
    sink: str
    files: tuple[PublishedFile, ...]


class Owner(msgspec.Struct, frozen=True):
    version: int
    job: str
    sink: str
    job_name: str = ""


class PublishedLog:
    """The log as its owner sees it."""

    def __init__(self, storage: Storage, job: JobId, sink: StepId, job_name: str = "") -> None:
        self._storage = storage
        self._owner = Owner(VERSION, job, sink, job_name)
        self._head: tuple[int, LogEntry | None] | None = None

    def own(self) -> None:
        """Take the folder, or find that it is ours; `SinkError` when it is somebody else's."""
        try:
            self._storage.create(OWNER, msgspec.json.encode(self._owner))
        except StorageError as error:
            found = self._read_owner(error)
            if (found.job, found.sink) != (self._owner.job, self._owner.sink):
                raise self._foreign(found.job, found.sink, found.job_name) from None

    def publish(self, epoch: Epoch, files: Sequence[PublishedFile]) -> bool:
        """Make the files visible; False when they were so already."""
        entry = LogEntry(VERSION, epoch, self._owner.job, self._owner.sink, tuple(files))
        while True:
            sequence, head = self._newest()
            if head is not None and head.epoch >= epoch:
                self._confirm(entry, sequence, head)
                return False
            try:
                self._storage.create(entry_path(sequence + 1), msgspec.json.encode(entry))
            except StorageError as error:
                found = self._lost(sequence + 1, error)
                self._head = (sequence + 1, found)
                if found == entry:  # an unknown outcome that turned out well, or another driver that finished our commit
                    return False
                continue
            self._head = (sequence + 1, entry)
            return True

    def published_in(self, epoch: Epoch) -> set[str]:
        """The paths that an epoch has published, as the log is now."""
        known, _ = self._newest()
        for newer, found in read_entries(self._storage, after=known):
            self._head = (newer, self._checked(found))
        sequence, entry = self._newest()
        while entry is not None and entry.epoch > epoch and sequence > 1:
            sequence -= 1
            entry = read_entry(self._storage, sequence)
        return {file.path for file in entry.files} if entry is not None and entry.epoch == epoch else set()

    def published(self) -> set[str]:
        """The paths of all published files."""
        return {file.path for _, entry in read_entries(self._storage) for file in entry.files}

    def _newest(self) -> tuple[int, LogEntry | None]:
        if self._head is None:
            last = 0
            for listed in self._storage.list(LOG):
                last = max(last, entry_sequence(listed.path) or 0)
            self._head = (last, None if last == 0 else self._checked(read_entry(self._storage, last)))
        return self._head

    def _lost(self, sequence: int, error: StorageError) -> LogEntry:
        """What is there instead of the entry that could not be created."""
        try:
            return self._checked(read_entry(self._storage, sequence))
        except NotFoundError:
            raise error from None

    def _confirm(self, entry: LogEntry, sequence: int, found: LogEntry) -> None:
        """The log is at this epoch or past it: the same files must be published, or this driver has come too late."""
        newest = found
        while found.epoch > entry.epoch and sequence > 1:
            sequence -= 1
            found = self._checked(read_entry(self._storage, sequence))
        if found.epoch != entry.epoch:
            raise SinkError(
                f"The sink {entry.sink} cannot publish epoch {entry.epoch}: epoch {newest.epoch} is published already",
                detail=f"in {self._storage.uri}",
                hint="another driver has taken this job over; stop this one",
            )
        if set(found.files) != set(entry.files):
            raise SinkError(
                f"The sink {entry.sink} cannot publish epoch {entry.epoch}: it is published with other files",
                detail=f"in {self._storage.uri}/{entry_path(sequence)}\nthere: {_paths(found)}\nhere: {_paths(entry)}",
                hint="another driver has taken this job over; stop this one",
            )

    def _checked(self, entry: LogEntry) -> LogEntry:
        if (entry.job, entry.sink) != (self._owner.job, self._owner.sink):
            raise self._foreign(entry.job, entry.sink)
        return entry

    def _read_owner(self, error: StorageError) -> Owner:
        try:
            return msgspec.json.decode(self._storage.read(OWNER), type=Owner)
        except NotFoundError:
            raise error from None
        except msgspec.MsgspecError as broken:
            raise SinkError(f"{self._storage.uri}/{OWNER} cannot be read", detail=str(broken)) from broken

    def _foreign(self, job: str, sink: str, job_name: str = "") -> SinkError:
        name = f" ({job_name})" if job_name else ""
        return SinkError(
            f"The folder {self._storage.uri} belongs to another job or sink",
            detail=f"owner: job {job}{name}, sink {sink}\nthis one: job {self._owner.job}, sink {self._owner.sink}",
            hint="give every job and every sink a folder of its own; a job that goes on must keep the name of its sink",
        )


def read_entry(storage: Storage, sequence: int) -> LogEntry:
    path = entry_path(sequence)
    try:
        entry = msgspec.json.decode(storage.read(path), type=LogEntry)
    except msgspec.MsgspecError as error:
        raise CorruptFileError(f"The log entry {storage.uri}/{path} cannot be read", detail=str(error)) from error
    if entry.version != VERSION:
        raise CorruptFileError(
            f"The log entry {storage.uri}/{path} has version {entry.version}",
            hint=f"this Penstock knows version {VERSION}: upgrade it",
        )
    return entry


def read_entries(storage: Storage, after: int = 0) -> Iterator[tuple[int, LogEntry]]:
    """The entries after a known one, with their numbers, as far as the log goes now."""
    sequence = after
    while True:
        sequence += 1
        try:
            entry = read_entry(storage, sequence)
        except NotFoundError:
            return
        yield sequence, entry


def read_file(storage: Storage, file: PublishedFile) -> bytes:
    """A published file, checked."""
    data = storage.read(file.path)
    if len(data) != file.bytes or (file.checksum is not None and f"{zlib.crc32(data):08x}" != file.checksum):
        raise CorruptFileError(
            f"The published file {storage.uri}/{file.path} is damaged",
            detail=f"{len(data)} bytes, CRC-32 {zlib.crc32(data):08x}; the log says {file.bytes} and {file.checksum}",
        )
    return data


def _paths(entry: LogEntry) -> str:
    paths: list[Any] = [file.path for file in entry.files[:3]]
    return ", ".join(paths) + (" …" if len(entry.files) > 3 else "")

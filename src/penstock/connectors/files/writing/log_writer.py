"""The log of a `FileSink`, as its owner writes it.

- Entry k+1 is created exclusively, and only by somebody who has read entry k: the log is a chain of compare-and-sets. A driver
  that wakes up late finds its place taken, reads on, and either finds its own epoch published (by whoever took over, from the
  same staged files) or learns that later epochs have gone past it, and publishes nothing.
- Epochs grow along the log, also over going back: the numbers of epochs are never reused, and an entry that takes output back
  carries the epoch of the take-over. It is written in any case, also when there is nothing to take back: from then on every
  driver of the line that was given up has come too late.
- A folder has one owner, (job, sink), forever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.connectors.files.writing import log_view as views
from penstock.connectors.files.writing.log_format import (
    OWNER_VERSION,
    VERSION,
    LogEntry,
    Owner,
    PublishedFile,
    encode_entry,
    newest_entry,
    read_entries,
    read_entry,
    view_after,
)
from penstock.connectors.files.writing.log_view import View
from penstock.connectors.files.writing.names import OWNER, entry_path
from penstock.errors import CorruptFileError, NotFoundError, SinkError, StorageError
from penstock.ids import Epoch, JobId, StepId
from penstock.storage import Storage
from penstock.storage.documents import NOTE_BYTES, read_small
from penstock.storage.sealed import seal, unseal


class PublishedLog:
    """The log as its owner sees it."""

    def __init__(self, storage: Storage, job: JobId, sink: StepId, job_name: str = "") -> None:
        self._storage = storage
        self._owner = Owner(OWNER_VERSION, job, sink, job_name)
        self._head: tuple[int, LogEntry | None] | None = None
        self._appended = 0
        self._lock = threading.RLock()

    def own(self) -> bool:
        """Take the folder (True), or find that it is ours; `SinkError` when it is somebody else's."""
        try:
            self._storage.create(OWNER, seal(self._owner))
            return True
        except StorageError as error:
            found = self._read_owner(error)
            if (found.job, found.sink) != (self._owner.job, self._owner.sink):
                raise self._foreign(OWNER, found.job, found.sink, found.job_name) from None
            return False

    # --- writing -----------------------------------------------------------------------------------------------------------

    def publish(self, epoch: Epoch, files: Sequence[PublishedFile]) -> bool:
        """Make the files visible, or during a repair part of what will be; False when they were so already."""
        wanted = self._entry(epoch, files=tuple(files))
        with self._lock:
            return self._append(wanted, lambda number, view: views.published(view, number))

    def roll_back(self, to: Epoch, at: Epoch) -> bool:
        """Show what the line of epoch `to` had published when that was the newest; False when it was done already."""
        wanted = self._entry(at, kind="back", to=to)
        with self._lock:
            self.refresh()
            return self._append(wanted, lambda number, view: views.back(self._view_of(to)))

    def begin_repair(self, to: Epoch, at: Epoch) -> bool:
        """Show what is shown, until the switch; meanwhile hold back what the line of epoch `to` publishes."""
        wanted = self._entry(at, kind="repair", to=to)
        with self._lock:
            self.refresh()
            return self._append(wanted, lambda number, view: views.repair(view, self._view_of(to)))

    def switch(self, at: Epoch) -> bool:
        """End a repair: show what was held back. False when none is under way, or others have gone past `at`.

        This driver itself may have: at-least-once output is published ahead of the epoch's commit."""
        with self._lock:
            number, head = self.refresh()
            if head is None or not self.repairing or (head.order >= (at, 1) and number != self._appended):
                return False
            wanted = self._entry(Epoch(max(at, head.epoch)), kind="switch")
            return self._append(wanted, lambda number, view: views.switched(view))

    # --- looking -----------------------------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        return view_after(*self._newest())

    @property
    def repairing(self) -> bool:
        return self.view.held is not None

    @property
    def newest(self) -> Epoch:
        """The epoch of the newest entry; 0 when there is none."""
        _, head = self._newest()
        return Epoch(0 if head is None else head.epoch)

    def refresh(self) -> tuple[int, LogEntry | None]:
        """Read on to the end of the log."""
        with self._lock:
            for newer, found in read_entries(self._storage, after=self._newest()[0]):
                self._head = (newer, self._checked(newer, found))
            return self._newest()

    def line_of(self, epoch: Epoch) -> views.Runs:
        """What the line of an epoch had published when that was the newest."""
        return self._view_of(epoch).line

    def published_in(self, epoch: Epoch) -> set[str]:
        """The paths that an epoch has published, as the log is now."""
        number, entry = self.refresh()
        while entry is not None and number > 1 and (entry.epoch > epoch or entry.kind == "switch"):
            number -= 1
            entry = read_entry(self._storage, number)
        return {file.path for file in entry.files} if entry is not None and entry.epoch == epoch else set()

    def _view_of(self, epoch: Epoch) -> View:
        """The view when `epoch` was the newest: after the last entry that is not beyond it."""
        low, high = 0, self._newest()[0]
        while low < high:  # the last entry at or before the epoch is in low..high
            middle = (low + high + 1) // 2
            if read_entry(self._storage, middle).epoch <= epoch:
                low = middle
            else:
                high = middle - 1
        return view_after(low, None if low == 0 else self._checked(low, read_entry(self._storage, low)))

    def _newest(self) -> tuple[int, LogEntry | None]:
        if self._head is None:
            last, entry = newest_entry(self._storage)
            self._head = (last, None if entry is None else self._checked(last, entry))
        return self._head

    # --- the chain ---------------------------------------------------------------------------------------------------------

    def _entry(self, epoch: Epoch, **fields: Any) -> LogEntry:
        return LogEntry(VERSION, epoch, self._owner.job, self._owner.sink, created_ms=round(time.time() * 1000), **fields)

    def _append(self, wanted: LogEntry, change: Callable[[int, View], View]) -> bool:
        """Create the next entry; False when the log has it already."""
        while True:
            number, head = self._newest()
            if head is not None and head.order >= wanted.order:
                self._confirm(wanted, number, head)
                return False
            view = change(number + 1, view_after(number, head))
            entry = msgspec.structs.replace(wanted, shown=view.shown, held=view.held, number=number + 1)
            try:
                self._storage.create(entry_path(number + 1), encode_entry(entry))
            except StorageError as error:
                found = self._lost(number + 1, error)
                self._head = (number + 1, found)
                if found.says_the_same(entry):  # an unknown outcome that turned out well, or another driver finished our commit
                    return False
                continue
            self._head = (number + 1, entry)
            self._appended = number + 1
            return True

    def _lost(self, number: int, error: StorageError) -> LogEntry:
        """What is there instead of the entry that could not be created."""
        try:
            return self._checked(number, read_entry(self._storage, number))
        except NotFoundError:
            raise error from None

    def _confirm(self, wanted: LogEntry, number: int, found: LogEntry) -> None:
        """The log is at this epoch or past it: it must say the same about it, or this driver has come too late."""
        newest = found
        while found.order > wanted.order and number > 1:
            number -= 1
            found = self._checked(number, read_entry(self._storage, number))
        if found.order != wanted.order:
            raise SinkError(
                f"the sink {wanted.sink} cannot {_VERBS[wanted.kind]} epoch {wanted.epoch}: "
                f"epoch {newest.epoch} is published already",
                detail=f"in {self._storage.uri}",
                hint="another driver has taken this job over; stop this one",
            )
        if not found.says_the_same(wanted):
            raise SinkError(
                f"the sink {wanted.sink} cannot {_VERBS[wanted.kind]} epoch {wanted.epoch}: it is published with other files",
                detail=f"in {self._storage.uri}/{entry_path(number)}\nthere: {_paths(found)}\nhere: {_paths(wanted)}",
                hint="another driver has taken this job over; stop this one",
            )

    # --- the owner ---------------------------------------------------------------------------------------------------------

    def _checked(self, number: int, entry: LogEntry) -> LogEntry:
        if (entry.job, entry.sink) != (self._owner.job, self._owner.sink):
            raise self._foreign(entry_path(number), entry.job, entry.sink)
        return entry

    def _read_owner(self, error: StorageError) -> Owner:
        try:
            owner = unseal(read_small(self._storage, OWNER, NOTE_BYTES), Owner, f"{self._storage.uri}/{OWNER}")
        except NotFoundError:
            raise error from None
        if owner.version != OWNER_VERSION:
            raise CorruptFileError(
                f"{self._storage.uri}/{OWNER} has version {owner.version}",
                hint=f"this Penstock knows version {OWNER_VERSION}: upgrade it",
            )
        return owner

    def _foreign(self, path: str, job: str, sink: str, job_name: str = "") -> SinkError:
        name = f" ({job_name})" if job_name else ""
        return SinkError(
            f"the folder {self._storage.uri} belongs to another job or sink",
            detail=f"{path} says: job {job}{name}, sink {sink}\nthis one: job {self._owner.job}, sink {self._owner.sink}",
            hint="give every job and every sink a folder of its own; a job that resumes must keep the name of its sink",
        )


_VERBS = {"publish": "publish", "back": "go back in", "repair": "begin a repair in", "switch": "end the repair in"}


def _paths(entry: LogEntry) -> str:
    paths: list[Any] = [file.path for file in entry.files[:3]]
    return ", ".join(paths) + (" …" if len(entry.files) > 3 else "")

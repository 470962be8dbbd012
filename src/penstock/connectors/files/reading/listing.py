"""The files of a source, in the order in which they are read.

Every file has a key: (0, path) for a bounded source, (mtime, path) for a watched folder, (number, index) for a folder with a
`_log/`, where only what the log shows counts. `last` in the position is the greatest key assigned, and that is all that is
remembered of the files read, but for one thing: names and times of a folder may become visible a little out of order, so those
within `GRACE` of the newest are remembered by name.

A log may take back what it has shown (see `view`). Files that were taken back are not read. A position says with its greatest
key what was read: all that is shown up to there; it is good as long as its entry is shown. If it is not, some of what was read
has been taken back (`TakenBack`).
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Literal

import msgspec

from penstock.connectors.files.reading.locations import Location
from penstock.connectors.files.writing.log_format import LogEntry, decode_entry, view_after
from penstock.connectors.files.writing.log_view import Runs, beyond, holds, numbers, shared, up_to
from penstock.connectors.files.writing.names import LOG, entry_path, entry_sequence
from penstock.errors import NotFoundError, SourceError

log = logging.getLogger("penstock.files")

GRACE_NS = 60_000_000_000
_LOG_ENTRIES_AT_ONCE = 10_000
_AFTER_ALL = "~"
"""In a key: after all files of the entry."""

Key = tuple[int, str]
KeyKind = Literal["path", "mtime", "log"]


class InputFile(msgspec.Struct, frozen=True):
    """A file to read."""

    key: Key
    path: str
    size: int


class TakenBack(msgspec.Struct, frozen=True):
    """Some of what a position says was read is not shown any more.

    What was published after epoch `to` has been taken back, up to epoch `read` of it was read; `last` is where both lines part,
    `paths` are the files that were taken back.
    """

    to: int
    read: int
    last: Key | None
    paths: frozenset[str]


class Listing:
    """What was there when it was last looked at."""

    def __init__(self, location: Location, shown: str, watch_ms: int | None) -> None:
        self._location = location
        self._shown = shown
        self._watch_ms = watch_ms
        self._listed_ms: int | None = None
        self._entries: list[InputFile] = []
        self._sums: list[int] = [0]
        self._names: dict[str, int] | None = None
        self._numbered: list[int] = []
        self._runs: Runs = ()
        self._unread: list[int] = []
        self._log_to: int | None = None
        self._dropped: Key | None = None
        self.kind: KeyKind = "path" if watch_ms is None else "mtime"

    @property
    def next_look_ms(self) -> int | None:
        """When a watched folder is to be looked at again."""
        return None if self._watch_ms is None or self._listed_ms is None else self._listed_ms + self._watch_ms

    def look(self, now_ms: int, kind: KeyKind | None, last: Key | None) -> None:
        """List again if it is time. `kind` and `last` are the position's."""
        due = self._listed_ms is None or (self._watch_ms is not None and now_ms >= self._listed_ms + self._watch_ms)
        if not due:
            return
        names = self._location.log() if kind in (None, "log") else None
        if names is not None or kind == "log":
            self.kind = "log"
            self._look_at_log(names or [], last)
        else:
            self.kind = "path" if self._watch_ms is None else "mtime"
            self._look_at_files(last)
        self._listed_ms = now_ms

    def after(self, last: Key | None, recent: Mapping[str, int]) -> Iterator[InputFile]:
        """The files not yet assigned, in order."""
        if self.kind == "mtime" and last is not None:
            for entry in self._entries[bisect_left(self._entries, last[0] - GRACE_NS, key=lambda e: e.key[0]) :]:
                if entry.path not in recent:
                    yield entry
            return
        if self.kind == "log":
            self._rewind(last)
        while True:
            at = self._at(last)
            for entry in self._entries[at:]:
                yield entry
                last = entry.key
            if not self._read_more_log():
                return

    def bytes_after(self, last: Key | None) -> int:
        """About how many bytes wait in files not yet assigned."""
        return self._sums[-1] - self._sums[self._at(last)]

    def _at(self, last: Key | None) -> int:
        return 0 if last is None else bisect_right(self._entries, last, key=lambda e: e.key)

    def _look_at_files(self, last: Key | None) -> None:
        found = self._location.find()
        if found is None:
            if self._watch_ms is None:
                raise SourceError(
                    f"there are no files at {self._shown}",
                    hint="correct the path, or watch= it for files to come",
                    nature="configuration",
                )
            found = []
        bounded = self.kind == "path"
        self._hold([InputFile((0 if bounded else f.mtime_ns, f.path), f.path, f.size) for f in found])
        if bounded:
            return
        known, self._names = self._names, {f.path: f.mtime_ns for f in found}
        if known is None or last is None:
            return
        for f in found:
            if f.path not in known and f.mtime_ns < last[0] - GRACE_NS:
                log.warning(
                    "%s appeared with a modification time more than %d s older than the newest file read: it is not read. "
                    "Move files in with their times renewed.",
                    f.path,
                    GRACE_NS // 1_000_000_000,
                )

    def times(self, recent: Mapping[str, int]) -> dict[str, int]:
        """The modification times of files remembered by name, as they are now."""
        names = self._names or {}
        return {path: max(at, names.get(path, at)) for path, at in recent.items()}

    def taken_back(self, last: Key | None) -> TakenBack | None:
        """Has the log taken back something that was read up to `last`?"""
        if self.kind != "log" or last is None or holds(self._runs, last[0]):
            return None
        entry = self._read_entry(last[0])
        view = view_after(last[0], entry)
        line = up_to(view.shown if holds(view.shown, last[0]) else view.held or (), last[0])
        common = shared(line, self._runs)
        gone = list(numbers(beyond(line, common)))
        return TakenBack(
            to=self._read_entry(common).epoch if common else 0,
            read=entry.epoch,
            last=(common, _AFTER_ALL) if common else None,
            paths=frozenset(self._location.join(file.path) for number in gone for file in self._read_entry(number).files),
        )

    def _look_at_log(self, names: list[str], last: Key | None) -> None:
        self._numbered = [n for name in names if (n := entry_sequence(f"{LOG}/{name}")) is not None]
        newest = max(self._numbered, default=0)
        runs = view_after(newest, self._read_entry(newest) if newest else None).shown
        if self._log_to is not None and up_to(runs, self._log_to) != up_to(self._runs, self._log_to):
            self._log_to = None  # something was taken back
        self._runs = runs
        self._rewind(last)
        self._unread = sorted(n for n in self._numbered if holds(runs, n) and (self._log_to is None or n > self._log_to))
        if last is not None:  # what has been read long ago need not be kept
            self._dropped = last
            self._hold(self._entries[self._at(last) :])

    def _rewind(self, last: Key | None) -> None:
        """Start the log anew when asked about a position before what was dropped, or for the first time."""
        if self._log_to is None or (self._dropped is not None and (last is None or last < self._dropped)):
            self._log_to = -1 if last is None else last[0] - 1
            self._unread = sorted(n for n in self._numbered if n > self._log_to and holds(self._runs, n))
            self._dropped = None
            self._hold([])

    def _read_more_log(self) -> bool:
        """Read on in the log; False when there is nothing more in it now."""
        before = len(self._entries)
        while self._unread and len(self._entries) == before:
            some, self._unread = self._unread[:_LOG_ENTRIES_AT_ONCE], self._unread[_LOG_ENTRIES_AT_ONCE:]
            added = [entry for number in some for entry in self._log_entry(number)]
            self._log_to = some[-1]
            self._hold(self._entries + added)
        return len(self._entries) > before

    def _log_entry(self, number: int) -> Iterator[InputFile]:
        for i, file in enumerate(self._read_entry(number).files):
            yield InputFile((number, f"{i:08d}"), self._location.join(file.path), file.bytes)

    def _read_entry(self, number: int) -> LogEntry:
        path = self._location.join(entry_path(number))
        try:
            return decode_entry(self._location.read(path), path, number)
        except (FileNotFoundError, NotFoundError) as error:
            raise SourceError(f"the log entry {path} cannot be read", detail=str(error)) from error

    def _hold(self, entries: list[InputFile]) -> None:
        self._entries = sorted(entries, key=lambda e: e.key)
        self._sums = list(accumulate((e.size for e in self._entries), initial=0))

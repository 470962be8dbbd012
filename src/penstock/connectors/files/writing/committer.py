"""A `FileSink`'s committer: publishes epochs, takes them back, and replaces them when a repair has caught up.

Files of output that was taken back stay for a while, for readers that are in the middle of them, and then go.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.files.writing import tidy
from penstock.connectors.files.writing.log_format import PublishedFile, read_entries, read_entry
from penstock.connectors.files.writing.log_view import Runs, beyond, holds, numbers, shared
from penstock.connectors.files.writing.log_writer import PublishedLog
from penstock.connectors.files.writing.names import DATA, check_data_path, part_attempt
from penstock.connectors.protocol import Committable, Committer, CommitterContext, OutputSince
from penstock.connectors.staging import leftovers
from penstock.ids import Epoch, Milliseconds
from penstock.storage import Storage, open_storage
from penstock.timing.durations import to_ms

if TYPE_CHECKING:
    from penstock.connectors.files.sink import FileSink


class FileCommitter(Committer):
    """Publishes; the folder is taken when it is made."""

    def __init__(self, sink: FileSink, context: CommitterContext, storage: Storage) -> None:
        self._sink = sink
        self._context = context
        self._storage = storage
        self._log = PublishedLog(storage, context.job, context.step, context.job_name)
        self._taken = self._log.own()
        self._remove_at: Milliseconds | None = None

    def commit(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        files = _files(committables)
        if files:
            self._log.publish(epoch, files)
            if self._sink.tidy and not self._log.repairing and self._log.newest == epoch:
                tidy.show(self._storage, [file.path for file in files])
        if self._remove_at is not None and self._remove_at <= _now():
            self._remove_taken_back()

    def confirm(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        """This epoch was published when it was committed. If the log's end is lost it is published again, from the same files;
        not into a folder that has just been taken: there everything was removed, on purpose."""
        files = _files(committables)
        if files and not self._taken and self._log.newest < epoch:
            self._log.publish(epoch, files)

    def abort(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        published = self._log.published_in(epoch)  # whatever the caller believes: nothing that is published goes this way
        self._storage.delete([file.path for file in _files(committables) if file.path not in published])

    # --- going back --------------------------------------------------------------------------------------------------------

    def published_after(self, epoch: Epoch) -> OutputSince:
        self._log.refresh()
        newest = self._log.newest or None
        if newest is None or newest <= epoch:
            return OutputSince(newest=newest, epochs=0, records=0)
        view = self._log.view
        line = self._log.line_of(epoch)
        files = [list(self._files_of(n)) for n in numbers(beyond(view.shown, shared(line, view.shown)))]
        again = [n for n in numbers(beyond(line, shared(line, view.shown))) if not holds(view.line, n)]
        return OutputSince(
            newest=newest,
            epochs=len(files),
            records=sum(file.rows for each in files for file in each),
            obstacle=self._obstacle(epoch, again),
        )

    def elsewhere(self, committables: Sequence[Committable]) -> dict[str, int]:
        found: dict[str, int] = {}
        for committable in committables:
            folder = committable.get("folder")
            if folder is not None and open_storage(folder).uri != self._storage.uri:
                found[folder] = found.get(folder, 0) + sum(file.rows for file in _files([committable]))
        return found

    def roll_back(self, to: Epoch, at: Epoch) -> None:
        self._log.roll_back(to, at)
        self._show_again()

    def begin_repair(self, to: Epoch, at: Epoch) -> None:
        self._log.begin_repair(to, at)
        self._show_again()

    def repairing(self) -> bool:
        return self._log.repairing

    def finish_repair(self, at: Epoch) -> None:
        if self._log.switch(at):
            self._show_again()

    def _show_again(self) -> None:
        self._remove_at = _now() + to_ms(self._sink.keep_taken_back)
        if self._sink.tidy:
            shown = self._log.view.shown
            tidy.show_only(self._storage, [file.path for number in numbers(shown) for file in self._files_of(number)])

    def _obstacle(self, epoch: Epoch, again: list[int]) -> str:
        """Why what was taken back cannot be shown again, if so."""
        missing = [f.path for number in again for f in self._files_of(number) if not self._storage.exists(f.path)]
        if not missing:
            return ""
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"files that were published up to epoch {epoch}, and taken back since, are removed: {missing[0]}{more}"

    def _files_of(self, number: int) -> Iterator[PublishedFile]:
        yield from read_entry(self._storage, number).files

    # --- tidying up --------------------------------------------------------------------------------------------------------

    def sweep(self) -> int:
        """Remove files of old attempts that were never published, and those long taken back; returns how many.

        Only after recovery has committed what the last manifest holds: until then its files are not in the log.
        """
        old = leftovers(self._storage, DATA, part_attempt, self._context)
        if not old:
            return 0
        known: set[str] = set()  # after the listing: what was published in between is in it
        hidden: set[str] = set()
        taken_back_ms = 0
        self._log.refresh()
        view = self._log.view
        for number, entry in read_entries(self._storage):
            paths = {file.path for file in entry.files}
            known |= paths
            if not holds(view.shown, number) and not holds(view.line, number):
                hidden |= paths
            if entry.kind != "publish":
                taken_back_ms = max(taken_back_ms, entry.created_ms)
        left = [path for path in old if path not in known]
        if taken_back_ms:
            self._finish_taking_back(view.shown, taken_back_ms, not hidden.isdisjoint(old))
        self._storage.delete(left)
        return len(left)

    def _finish_taking_back(self, shown: Runs, since_ms: Milliseconds, hidden: bool) -> None:
        if self._sink.tidy:
            tidy.show_only(self._storage, [file.path for number in numbers(shown) for file in self._files_of(number)])
        if hidden:
            self._remove_at = since_ms + to_ms(self._sink.keep_taken_back)
            if self._remove_at <= _now():
                self._remove_taken_back()

    def _remove_taken_back(self) -> None:
        """Delete the files that no reader is shown. Those shown again since are not among them."""
        newest, _ = self._log.refresh()
        view = self._log.view
        hidden = [n for n in range(1, newest + 1) if not holds(view.shown, n) and not holds(view.line, n)]
        self._storage.delete([file.path for number in hidden for file in self._files_of(number)])
        self._remove_at = None


def _files(committables: Sequence[Committable]) -> list[PublishedFile]:
    files = [msgspec.convert(file, PublishedFile) for committable in committables for file in committable["files"]]
    for file in files:
        check_data_path(file.path, "a manifest")
    return files


def _now() -> Milliseconds:
    return round(time.time() * 1000)

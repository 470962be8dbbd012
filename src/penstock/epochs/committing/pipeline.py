"""Epochs between their run and their commit.

    run → submitted → (with all before it) committed
                   ↘ discarded, together with all after it, when a commit before it fails

Laws:
- Epochs are committed in order. Nothing of an epoch is visible to anybody before it is committed, so what is discarded has had
  no effect.
- An epoch has its number when it is committed: until then `RanEpoch.manifest.epoch` is what it would be if it were alone.
- What waits when a commit begins is committed together, by one manifest: slow storage makes larger commits, not slower epochs.
- At most `depth` epochs wait; with 0 the submitter commits by itself and the next epoch begins after it.
- An epoch that is not `durable` (between two checkpoints) waits for one that is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.epochs.history import EpochRecord
from penstock.errors import PenstockError
from penstock.jobs.manifest import Manifest
from penstock.runtime.messages import TaskReport
from penstock.state.files.durable import FileRef

Place = tuple[int, int]
"""A stage and a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanEpoch:
    """An epoch that has run. `manifest` is as it will be committed, but for the files of the state: these are in `files`, and the
    contents of those that are not in the storage yet in `contents`, by name."""

    manifest: Manifest
    files: dict[Place, FileRef]
    contents: dict[str, bytes]
    reports: list[TaskReport]
    record: EpochRecord
    started: float
    final: bool = False
    durable: bool = True
    flush: bool = False


Layers = dict[Place, list[FileRef]]


def layers_of(waiting: list[RanEpoch]) -> Layers:
    """The deltas of epochs that are not committed, by place; a flush holds those before it. Pure."""
    found: Layers = {}
    for ran in waiting:
        if ran.flush:
            found = {}
        for place, ref in ran.files.items():
            found.setdefault(place, []).append(ref)
    return found


@dataclass(slots=True)
class Discarded:
    """Epochs that will not be: `tried` may have been committed half-way, `untouched` has not been begun."""

    tried: list[RanEpoch] = field(default_factory=list)
    untouched: list[RanEpoch] = field(default_factory=list)


class Pipeline:
    """Epochs that wait, and the thread that commits them. `commit` makes one manifest of several epochs."""

    def __init__(self, head: Manifest, commit: Callable[[Manifest, list[RanEpoch]], Manifest], depth: int) -> None:
        self._head = head
        self._commit = commit
        self._depth = depth
        self._waiting: list[RanEpoch] = []
        self._busy = 0
        self._failure: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def head(self) -> Manifest:
        """The newest committed epoch."""
        return self._head

    def look(self) -> tuple[Manifest, list[RanEpoch]]:
        """The newest committed epoch and those that wait on top of it, as of one moment."""
        with self._changed:
            return self._head, list(self._waiting)

    def reset(self, head: Manifest) -> None:
        """Another epoch was committed by other means."""
        with self._changed:
            self._head = head

    def submit(self, ran: RanEpoch) -> None:
        """Hand an epoch over. Waits while too many wait; raises what the commit of an earlier one raised."""
        with self._changed:
            self._waiting.append(ran)
            self._changed.notify_all()
        if self._depth == 0:
            self._commit_ready()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="penstock-commit", daemon=True)
            self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or self._ready() <= self._depth)
        self.check()

    def drain(self) -> None:
        """Wait until all that can be committed is."""
        if self._depth:
            with self._changed:
                self._changed.wait_for(lambda: self._failure is not None or not self._ready())
        self.check()

    def check(self) -> None:
        """Raise what went wrong in a commit."""
        if self._failure is not None:
            raise self._failure

    def give_up(self, because: PenstockError) -> None:
        """Stop waiting for commits: waiting calls get an error, the commit under way may yet succeed. From any thread."""
        with self._changed:
            self._closed = True
            self._failure = self._failure or because
            self._changed.notify_all()

    def discard(self) -> Discarded:
        """Forget all that waits: the next epoch continues from `head`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy or self._failure is not None)
            dropped = Discarded(self._waiting[: self._busy], self._waiting[self._busy :])
            self._waiting, self._busy, self._failure = [], 0, None
            self._changed.notify_all()
            return dropped

    def close(self, *, wait: bool = True) -> None:
        """Let the commit under way end; begin no other."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and wait:
            self._thread.join()

    def _ready(self) -> int:
        """How many epochs can be committed now."""
        return max((number for number, ran in enumerate(self._waiting, 1) if ran.durable), default=0)

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._ready() and self._failure is None))
                if self._closed:
                    return
            try:
                self._commit_ready()
            except BaseException as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()

    def _commit_ready(self) -> None:
        with self._changed:
            self._busy = self._ready()
            group = self._waiting[: self._busy]
        if not group:
            return
        try:
            head = self._commit(self._head, group)
        except PenstockError as error:
            if self._depth == 0:
                self._failure = error
            raise
        with self._changed:
            self._head = head
            del self._waiting[: len(group)]
            self._busy = 0
            self._changed.notify_all()

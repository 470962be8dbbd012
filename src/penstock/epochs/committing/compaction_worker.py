"""A process that merges state files, so that the driver's loop does not share its interpreter with it."""

from __future__ import annotations

import os
import threading
from typing import IO

import msgspec

from penstock.epochs.committing.compaction import MergeTask, merge
from penstock.errors import StateError
from penstock.piped_process import PipedProcess, receive, send
from penstock.state.files.durable import FileRef
from penstock.storage import open_storage


class Merged(msgspec.Struct, frozen=True):
    """The outcome of a merge."""

    ref: FileRef | None = None
    error: str = ""


class CompactionWorker:
    """Started with the first merge, used one merge at a time."""

    def __init__(self, storage_uri: str) -> None:
        self._uri = storage_uri
        self._process: PipedProcess | None = None
        self._lock = threading.Lock()

    def merge(self, task: MergeTask) -> FileRef:
        with self._lock:
            if self._process is None or not self._process.is_alive:
                self.close()
                self._process = PipedProcess(serve, self._uri)
            try:
                self._process.send(task)
                merged = self._process.receive(Merged)
            except OSError as error:
                raise StateError(f"the compaction process died: {error}") from error
        if merged is None:
            raise StateError("the compaction process died")
        if merged.ref is None:
            raise StateError(f"compaction failed: {merged.error}")
        return merged.ref

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()


def serve(tasks: IO[bytes], answers: IO[bytes], storage_uri: str) -> None:
    """Merge until the driver closes the stream."""
    storage = open_storage(storage_uri)
    while (task := receive(tasks, MergeTask)) is not None:
        try:
            merged = Merged(ref=merge(storage, task))
        except Exception as error:
            merged = Merged(error=f"{type(error).__name__}: {error}")
        try:
            send(answers, merged)
        except BrokenPipeError:  # the driver is gone
            os._exit(1)

"""A process that merges state files, so that the driver's loop does not share its interpreter with it.

It talks msgpack over its standard streams: a task in, a file reference or an error out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import IO

import msgspec

from penstock.epochs.committing.compaction import MergeTask, merge
from penstock.errors import StateError
from penstock.state.files.durable import FileRef
from penstock.storage import open_storage

_MAIN = f"import sys; from {__name__} import serve; serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)"
"""Not `-m`: the package imports this module itself, and runpy would warn of that on the user's terminal."""


class Merged(msgspec.Struct, frozen=True):
    """The outcome of a merge."""

    ref: FileRef | None = None
    error: str = ""


class CompactionWorker:
    """Started with the first merge, used one merge at a time."""

    def __init__(self, storage_uri: str) -> None:
        self._uri = storage_uri
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def merge(self, task: MergeTask) -> FileRef:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _MAIN, self._uri],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    process_group=0,  # Ctrl-C at a terminal is for the driver: it ends this process when it stops
                )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            try:
                _send(self._process.stdin, msgspec.msgpack.encode(task))
                data = _receive(self._process.stdout)
            except OSError as error:
                raise StateError(f"the compaction process died: {error}") from error
        if data is None:
            raise StateError("the compaction process died")
        merged = msgspec.msgpack.decode(data, type=Merged)
        if merged.ref is None:
            raise StateError(f"compaction failed: {merged.error}")
        return merged.ref

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def _send(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(8, "big") + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes | None:
    head = stream.read(8)
    return stream.read(int.from_bytes(head, "big")) if len(head) == 8 else None


def serve(storage_uri: str, tasks: IO[bytes], answers: IO[bytes]) -> None:
    """Merge until the driver closes the stream."""
    storage = open_storage(storage_uri)
    while (data := _receive(tasks)) is not None:
        try:
            merged = Merged(ref=merge(storage, msgspec.msgpack.decode(data, type=MergeTask)))
        except Exception as error:
            merged = Merged(error=f"{type(error).__name__}: {error}")
        try:
            _send(answers, msgspec.msgpack.encode(merged))
        except BrokenPipeError:  # the driver is gone
            os._exit(1)

"""Parts of a savepoint in processes of their own: beside a running job with low priority, otherwise one for each core.

It talks msgpack over its standard streams: a task in; progress, and finally the states or an error, out. It exits when stdin
closes: the parent died.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import IO

import msgspec

from penstock.errors import StateError
from penstock.snapshots.savepoint.format import SavedState
from penstock.snapshots.savepoint.saving import OnProgress, Part, write_part
from penstock.snapshots.savepoint.throttle import Throttle, lower_priority
from penstock.storage import Storage, open_storage

TELL_S = 0.1

_MAIN = "import sys; from penstock.snapshots.savepoint.saving_process import serve; serve(sys.stdin.buffer, sys.stdout.buffer)"


class PartTask(msgspec.Struct, frozen=True):
    """A part, where its state is and where to write it. `nice`: run with low priority."""

    storage: str
    place: str
    part: Part
    nice: bool


class Said(msgspec.Struct, frozen=True):
    """Progress; or, when `states` is there, the end; or an error."""

    groups: int = 0
    rows: int = 0
    states: list[SavedState] | None = None
    error: str = ""


def write_parts(storage: Storage, place: Storage, parts: list[Part], told: OnProgress, *, nice: bool) -> list[list[SavedState]]:
    """Write the parts beside one another, each in a process."""
    processes = [_start(nice=nice) for _ in parts]
    try:
        with ThreadPoolExecutor(len(parts), "penstock-savepoint") as threads:
            tasks = [PartTask(storage.uri, place.uri, part, nice) for part in parts]
            futures = [threads.submit(_follow, process, task, told) for process, task in zip(processes, tasks, strict=True)]
            try:
                return [future.result() for future in futures]
            except BaseException:
                _end(processes)  # their results are no longer needed
                raise
    finally:
        _end(processes)


def _start(*, nice: bool) -> subprocess.Popen[bytes]:
    # A session of its own: where the kernel shares processor time between sessions first, priority would mean nothing otherwise.
    command = [sys.executable, "-c", _MAIN]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    if nice:
        lower_priority(process.pid)
    return process


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


def _follow(process: subprocess.Popen[bytes], task: PartTask, told: OnProgress) -> list[SavedState]:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        _send(process.stdin, msgspec.msgpack.encode(task))
        while (data := _receive(process.stdout)) is not None:
            said = msgspec.msgpack.decode(data, type=Said)
            if said.error:
                raise StateError(f"the savepoint failed: {said.error}")
            told(said.groups, said.rows)
            if said.states is not None:
                return said.states
    except OSError as error:
        raise StateError(f"the process that writes the savepoint died: {error}") from error
    finally:
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                stream.close()
    raise StateError("the process that writes the savepoint died", detail=f"its exit code is {process.wait()}")


def serve(tasks: IO[bytes], answers: IO[bytes]) -> None:
    """Write one part."""
    data = _receive(tasks)
    if data is None:
        return
    threading.Thread(target=_exit_with_parent, args=(tasks,), daemon=True).start()
    task = msgspec.msgpack.decode(data, type=PartTask)
    progress = _Progress(answers, Throttle() if task.nice else None)
    try:
        states = write_part(open_storage(task.storage), open_storage(task.place), task.part, progress)
        said = Said(progress.groups, progress.rows, states)
    except Exception as error:
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        said = Said(error=f"{error}{notes}" or type(error).__name__)
    _send(answers, msgspec.msgpack.encode(said))


def _exit_with_parent(tasks: IO[bytes]) -> None:
    while os.read(tasks.fileno(), 1):
        pass
    os._exit(1)


class _Progress:
    """Tells now and then."""

    def __init__(self, answers: IO[bytes], give_way: Throttle | None) -> None:
        self._answers = answers
        self._give_way = give_way
        self._at = time.monotonic()
        self.groups = self.rows = 0

    def __call__(self, groups: int, rows: int) -> None:
        self.groups += groups
        self.rows += rows
        if time.monotonic() - self._at >= TELL_S:
            _send(self._answers, msgspec.msgpack.encode(Said(self.groups, self.rows)))
            self._at = time.monotonic()
            self.groups = self.rows = 0
        if self._give_way is not None:
            self._give_way()


def _send(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(8, "big") + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes | None:
    head = stream.read(8)
    if len(head) < 8:
        return None
    length = int.from_bytes(head, "big")
    data = stream.read(length)
    return data if len(data) == length else None

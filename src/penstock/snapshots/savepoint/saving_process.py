"""Parts of a savepoint in processes of their own: beside a running job with low priority, otherwise one for each core.

Each gets one task, and answers with progress and then the states or an error. It exits when its standard input closes: whoever
asked for the savepoint has died.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import IO

import msgspec

from penstock.errors import StateError
from penstock.piped_process import PipedProcess, receive, send
from penstock.snapshots.savepoint.format import SavedState
from penstock.snapshots.savepoint.saving import Part, Written, write_part
from penstock.snapshots.savepoint.throttle import Throttle, lower_priority
from penstock.storage import Storage, open_storage

TELL_S = 0.1


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


def write_parts(storage: Storage, place: Storage, parts: list[Part], written: Written, *, nice: bool) -> list[list[SavedState]]:
    """Write the parts beside one another, each in a process."""
    processes = [_start(nice=nice) for _ in parts]
    try:
        with ThreadPoolExecutor(len(parts), "penstock-savepoint") as threads:
            tasks = [PartTask(storage.uri, place.uri, part, nice) for part in parts]
            futures = [threads.submit(_follow, process, task, written) for process, task in zip(processes, tasks, strict=True)]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for process in processes:  # one part has failed: the others are of no use
                    process.kill()
                raise
    finally:
        for process in processes:
            process.close()


def _start(*, nice: bool) -> PipedProcess:
    # A session of its own: where the kernel shares processor time between sessions first, priority would mean nothing otherwise.
    process = PipedProcess(serve, own_session=True)
    if nice:
        lower_priority(process.pid)
    return process


def _follow(process: PipedProcess, task: PartTask, written: Written) -> list[SavedState]:
    try:
        process.send(task)
        while (said := process.receive(Said)) is not None:
            if said.error:
                raise StateError(f"the savepoint failed: {said.error}")
            written(said.groups, said.rows)
            if said.states is not None:
                return said.states
    except OSError as error:
        raise StateError(f"the process that writes the savepoint died: {error}") from error
    raise StateError("the process that writes the savepoint died", detail=f"its exit code is {process.kill()}")


def serve(tasks: IO[bytes], answers: IO[bytes]) -> None:
    """Write one part."""
    task = receive(tasks, PartTask)
    if task is None:
        return
    threading.Thread(target=_exit_with_parent, args=(tasks,), daemon=True).start()
    progress = _Progress(answers, Throttle() if task.nice else None)
    try:
        states = write_part(open_storage(task.storage), open_storage(task.place), task.part, progress)
        said = Said(progress.groups, progress.rows, states)
    except Exception as error:
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        said = Said(error=f"{error}{notes}" or type(error).__name__)
    send(answers, said)


def _exit_with_parent(tasks: IO[bytes]) -> None:
    while os.read(tasks.fileno(), 1):
        pass
    os._exit(1)


class _Progress:
    """Tells now and then."""

    def __init__(self, answers: IO[bytes], throttle: Throttle | None) -> None:
        self._answers = answers
        self._throttle = throttle
        self._at = time.monotonic()
        self.groups = self.rows = 0

    def __call__(self, groups: int, rows: int) -> None:
        self.groups += groups
        self.rows += rows
        if time.monotonic() - self._at >= TELL_S:
            send(self._answers, Said(self.groups, self.rows))
            self._at = time.monotonic()
            self.groups = self.rows = 0
        if self._throttle is not None:
            self._throttle()

"""What runs in Spark's Python workers: unpack job and order once, run the stage task. Imported there by name."""

from __future__ import annotations

import gc
import sys
import zipimport
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from pyspark import TaskContext

from penstock.runtime.job import CompiledJob, load_job
from penstock.runtime.messages import EpochOrder, attempt_name, decode_order
from penstock.runtime.services import FunctionPool
from penstock.runtime.task import Task
from penstock.state.stores.cleaning import clean_beside, leave, leave_others

_LOOK_EVERY = 100
"""Tasks."""
_GROWN, _MANY = 1.25, 100_000
"""Much more is so many times as many objects, and so many in addition."""

_pack_target = Struct("!q").pack
_jobs: dict[str, tuple[CompiledJob, FunctionPool]] = {}
_orders: dict[tuple[str, int, int], EpochOrder] = {}


class StageFunction:
    """A stage of an epoch, as Spark calls it for each partition. Small: the job's bytes may be a broadcast variable."""

    def __init__(
        self, digest: str, job: Any, order: bytes, order_key: tuple[str, int, int], stage: int, last: bool, lap: int = 0
    ) -> None:
        self.digest = digest
        self.job = job
        self.order = order
        self.order_key = order_key
        self.stage = stage
        self.last = last
        self.lap = lap

    def __call__(self, split: int, incoming: Iterable[bytes]) -> Iterator[bytes]:
        _set_aside()
        if self.stage == 0:
            _drain(incoming)
        job, pool = self._job()
        order = self._order()
        context = TaskContext.get()
        assert context is not None
        attempt = attempt_name(order.term, order.plan, self.stage, split, context.taskAttemptId())
        task = Task(job, self.stage, split, order, attempt, pool, lap=self.lap)
        frames = None if self.stage == 0 else incoming
        if self.last:
            with _no_collection():
                return iter((task.report(frames),))
        return _paired(task, frames)

    def _job(self) -> tuple[CompiledJob, FunctionPool]:
        found = _jobs.get(self.digest)
        if found is None:
            for _, pool in _jobs.values():
                pool.close()
            _jobs.clear()
            data = self.job if isinstance(self.job, bytes) else self.job.value
            found = _jobs[self.digest] = (load_job(data), FunctionPool())
            leave_others(found[0].local_dir, found[0].job)
            clean_beside(found[0].local_dir, found[0].keep_local_ms / 1000, seldom=True)
        return found

    def _order(self) -> EpochOrder:
        found = _orders.get(self.order_key)
        if found is None:
            _orders.clear()
            found = _orders[self.order_key] = decode_order(self.order)
        return found


def _paired(task: Task, frames: Iterable[bytes] | None) -> Iterator[bytes]:
    """Frames as Spark's pairwise shuffle wants them: target, then bytes."""
    with _no_collection():
        for target, frame in task.frames(frames):
            yield _pack_target(target)
            yield frame


@contextmanager
def _no_collection() -> Iterator[None]:
    """No search for cycles while a task makes its many short-lived records: it finds nothing and takes a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class SetAside:
    """Takes what lives when a task begins out of the search for cycles.

    After each task PySpark's daemon searches all that the process has ever imported, and the next task waits for it. What is set
    aside was searched after the task before. Everything is searched again when there is much more of it than after the last time:
    of a large heap that takes seconds.
    """

    def __init__(self) -> None:
        self._tasks = 0
        self._kept = 0
        self._searched = True

    def __call__(self) -> None:
        self._tasks += 1
        if self._tasks % _LOOK_EVERY == 0 and gc.get_freeze_count() > _GROWN * self._kept + _MANY:
            gc.unfreeze()
            self._searched = True
            return
        gc.freeze()
        if self._searched:
            self._kept, self._searched = gc.get_freeze_count(), False


_set_aside = SetAside()


class CloseFunctions:
    """Closes the user's functions in the workers it reaches, when a job ends well; and, `for_good`, removes its stores there. A
    worker that is killed closes nothing."""

    def __init__(self, digest: str, local_dir: str | None, job: str, for_good: bool) -> None:
        self.digest = digest
        self.local_dir = local_dir
        self.job = job
        self.for_good = for_good

    def __call__(self, split: int, incoming: Iterable[Any]) -> Iterator[bytes]:
        _drain(incoming)
        found = _jobs.pop(self.digest, None)
        if found is not None:
            found[1].close()
        leave(self.local_dir, self.job, for_good=self.for_good)
        return iter(())


class Rehearsal:
    """Loads a job as its tasks will, so that all that it imports is there when they come."""

    def __init__(self, job: bytes) -> None:
        self.job = job

    def __call__(self, split: int, incoming: Iterable[Any]) -> Iterator[bytes]:
        _drain(incoming)
        load_job(self.job)
        return iter(())


def nothing(split: int, incoming: Iterable[Any]) -> Iterator[bytes]:
    """A task that does nothing: keeps a worker from being stopped for idleness."""
    _drain(incoming)
    return iter(())


def _drain(incoming: Iterable[Any]) -> None:
    """Read an empty input to its end mark: Spark does not use a worker again that left something unread."""
    for _ in incoming:
        raise AssertionError("the first stage has no input")


def _keep_zip_directories() -> None:
    """Before each task PySpark has all importers look again at what they can import, and for its own zip archive, which never
    changes, that takes longer than anything else in a small task. Those of archives are told not to."""
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimport.zipimporter):
            finder.invalidate_caches = _nothing_changed  # type: ignore[method-assign]


def _nothing_changed() -> None:
    pass


_keep_zip_directories()

"""The inline executor: the same stage tasks, in this process, one after another. No JVM.

For users' unit tests, for looking into an epoch with a debugger, and as the reference that Spark is compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import EpochFailedError, PenstockError
from penstock.failpoints import InjectedError
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import EpochOrder, TaskReport, attempt_name, decode_reports
from penstock.runtime.services import FunctionPool
from penstock.runtime.task import Task
from penstock.state.stores.cleaning import leave


class InlineExecutor:
    """Runs every task of a stage, then those of the next."""

    def __init__(self, task: Callable[..., Task] = Task) -> None:
        self._make_task = task
        self._job: CompiledJob | None = None
        self._pool = FunctionPool()
        self._attempts = 0
        self._drops = False

    def start(self, job: CompiledJob) -> None:
        self._pool.close()
        self._job = job

    def run(self, order: EpochOrder) -> list[TaskReport]:
        return self._run(order)

    def open_state(self, order: EpochOrder) -> list[TaskReport]:
        return self._run(order)

    def _run(self, order: EpochOrder) -> list[TaskReport]:
        job = self._job
        assert job is not None
        frames: list[list[bytes]] | None = None
        *chain, last = job.chain(order.laps)
        for stage, lap in chain:
            sent: list[list[bytes]] = [[] for _ in range(job.parallelism)]
            for partition in range(job.parallelism):
                for target, frame in self._guard(
                    self._task(order, stage, partition, lap).frames, None if frames is None else frames[partition]
                ):
                    sent[target].append(frame)
            frames = sent
        reports: list[TaskReport] = []
        for partition in range(job.parallelism):
            task = self._task(order, last[0], partition, last[1])
            try:
                reports += decode_reports(task.report(None if frames is None else frames[partition]))
            except (OSError, InjectedError) as error:
                raise _failed(error) from error
        return reports

    def restart(self) -> None:
        """There is nothing to restart."""

    def keep_warm(self) -> None:
        """There is nothing to keep warm."""

    def drop_state(self) -> bool:
        self._drops = True
        return False

    def close(self) -> None:
        self._pool.close()
        if self._job is not None:
            leave(self._job.local_dir, self._job.job, for_good=self._drops)

    def _task(self, order: EpochOrder, stage: int, partition: int, lap: int = 0) -> Task:
        assert self._job is not None
        self._attempts += 1
        attempt = attempt_name(order.term, order.plan, stage, partition, self._attempts)
        return self._make_task(self._job, stage, partition, order, attempt, self._pool, lap=lap)

    def _guard(self, frames: Any, incoming: list[bytes] | None) -> list[tuple[int, bytes]]:
        try:
            return list(frames(incoming))
        except (OSError, InjectedError) as error:
            raise _failed(error) from error


def _failed(error: Exception) -> PenstockError:
    if isinstance(error, PenstockError) and isinstance(error, EpochFailedError):
        return error
    return EpochFailedError(f"a task failed: {type(error).__name__}: {error}")

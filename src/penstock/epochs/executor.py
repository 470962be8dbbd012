"""What the loop needs of an executor."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from penstock.runtime.job import CompiledJob
from penstock.runtime.orders import EpochOrder, TaskReport


class Executor(Protocol):
    """Runs the stage tasks of an epoch.

    `run` returns one report for each stage and partition, or raises `EpochFailedError` (try again) or `ExecutorLostError` (call
    `restart` first). What user code did wrong is in the reports.
    """

    def start(self, job: CompiledJob) -> None: ...

    def run(self, order: EpochOrder) -> list[TaskReport]: ...

    def restart(self) -> None: ...

    def keep_warm(self) -> None:
        """Called now and then while the job is idle."""

    def extras(self) -> dict[str, Any]:
        """What sources may need of the engine."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Prepares(Protocol):
    """An executor that can get ready before there is a job."""

    def prepare(self, parallelism: int) -> None:
        """Called now and then while a standby waits."""

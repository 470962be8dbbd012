"""What the loop needs of an executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import EpochOrder, TaskReport


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

    def close(self) -> None: ...


@runtime_checkable
class Begins(Protocol):
    """An executor that takes a while to start."""

    def begin(self, parallelism: int) -> None:
        """There will be a job soon: start beside whatever comes first. Returns at once; `start` waits for the rest."""
        ...


@runtime_checkable
class HasSession(Protocol):
    """An executor that works through a Spark session."""

    def session(self) -> Any:
        """The `SparkSession`; waits for it to start."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """An executor that can get ready before there is a job."""

    def prepare(self, parallelism: int, rehearse: Callable[[], CompiledJob | None]) -> None:
        """Called now and then while a standby waits; returns at once. `rehearse`: see `rehearsing`; may be called in a thread."""


@runtime_checkable
class OpensState(Protocol):
    """An executor whose tasks can open their state before there is an epoch."""

    def open_state(self, order: EpochOrder) -> list[TaskReport]:
        """As `run`, for an order that only opens state (`EpochOrder.opens`)."""
        ...


@runtime_checkable
class DropsState(Protocol):
    """An executor that keeps local stores on its hosts."""

    def drop_state(self) -> bool:
        """The job has ended for good: when this executor is closed, its tasks' stores go, on every host that can be reached.

        True: its worker processes on this host end then, a moment later."""
        ...


@runtime_checkable
class Interrupts(Protocol):
    """An executor that need not be waited for."""

    def interrupt(self, because: str) -> None:
        """Let what is run now fail, and all that is run from now on. Called from another thread, and returns soon."""


@runtime_checkable
class Abandons(Protocol):
    """An executor that can be left at once."""

    def abandon(self) -> None:
        """Instead of `close`: nothing that runs is waited for."""

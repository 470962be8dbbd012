"""A job from outside: in any process, while it runs or not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from penstock.compile.in_process import Planned
from penstock.ids import Epoch
from penstock.jobs.lineage import Lineage, read_lineage
from penstock.jobs.liveness import ask_driver, is_driven, stop_driver
from penstock.jobs.terms import job_in
from penstock.snapshots.replay.replay import LIMIT, replay
from penstock.snapshots.replay.result import NO_KEY, Replay
from penstock.snapshots.savepoint.format import SavepointInfo
from penstock.snapshots.savepoint.savepoint import OnProgress, make_savepoint
from penstock.snapshots.savepoint.target_folder import check_free
from penstock.snapshots.view.retained import KeptEpoch, list_epochs
from penstock.storage import open_storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """How a job was stopped: after which epoch, all of whose output is published."""

    epoch: Epoch
    message: str
    savepoint: SavepointInfo | None = None
    drained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaled:
    """How a job was rescaled. `downtime`: seconds from the last commit before until it was ready again."""

    before: int
    parallelism: int
    downtime: float
    message: str


class Job:
    """The job in a storage, which is a folder or a URI. Works through the storage alone: from the program itself, in another
    thread, or from another machine."""

    def __init__(self, storage: str | os.PathLike[str]) -> None:
        self._storage = open_storage(storage)
        self._info = job_in(self._storage)

    def __repr__(self) -> str:
        return f"Job({self.storage!r})"

    @property
    def storage(self) -> str:
        """The storage's URI."""
        return self._storage.uri

    @property
    def name(self) -> str:
        return self._info.name

    @property
    def running(self) -> bool | None:
        """Does a driver run? None: it is, or was, on another host."""
        return is_driven(self._storage)

    def epochs(self) -> list[KeptEpoch]:
        """The epochs that are kept, oldest first: `env.execute(restore_from="JOB@EPOCH")` starts from one."""
        return list_epochs(self._storage)

    def replay(
        self,
        epoch: int | str,
        *,
        step: str | None = None,
        key: Any = NO_KEY,
        limit: int | None = LIMIT,
        app: str | None = None,
        env: Planned | None = None,
        records: int | None = None,
        record: str | None = None,
        arguments: list[str] | None = None,
        trust: bool = False,
    ) -> Replay:
        """Run a kept epoch again, without touching the job: a number, "latest", or "next". See `penstock.snapshots.replay`."""
        return replay(
            self.storage,
            epoch,
            step=step,
            key=key,
            limit=limit,
            app=app,
            arguments=arguments,
            env=env,
            records=records,
            record=record,
            trust=trust,
        )

    def savepoint(
        self, to: str | os.PathLike[str] | None = None, *, epoch: int | None = None, told: OnProgress | None = None
    ) -> SavepointInfo:
        """Make a savepoint, beside the epochs if the job runs; of the newest epoch, or of one that is still kept.

        `to`: an empty folder or a URI; without it the savepoint goes below `savepoints/` in the job's storage.
        `told` is called now and then, with the progress.
        """
        return make_savepoint(self._storage, epoch, None if to is None else os.fspath(to), told=told)

    def stop(
        self,
        *,
        savepoint: bool | str | os.PathLike[str] = False,
        drain: bool = False,
        timeout: float = 60.0,
        told: OnProgress | None = None,
    ) -> Stopped:
        """Stop the job after its current epoch; `timeout` is how many seconds its driver has to answer.

        `drain`: end all time first, so that windows close and timers fire; the job is finished then, and cannot go on.
        `savepoint`: then make one of its last epoch, where `True` is below the job's storage and anything else says where to.
        """
        to = None if isinstance(savepoint, bool) else os.fspath(savepoint)
        if to is not None:
            check_free(open_storage(to))  # before the job is stopped for it
        answer = stop_driver(self._storage, timeout, drain=drain)
        epoch = Epoch(answer.result["epoch"])
        if savepoint is False:
            return Stopped(epoch=epoch, message=answer.message, drained=drain)
        made = make_savepoint(self._storage, epoch, to, told=told, driven=False)
        return Stopped(epoch=epoch, message=answer.message, savepoint=made, drained=drain)

    def refresh(self, step: str | None = None, *, timeout: float = 60.0) -> str:
        """Let the running job load the table of a step anew (`enrich`), or all tables, for its next epoch; its answer."""
        answer = ask_driver(self._storage, "refresh", timeout, idle="it loads its tables when it starts", step=step)
        return answer.message

    def lineage(self) -> Lineage:
        """The tree of jobs, savepoints, restores and forks that the job is in, from its oldest ancestor that can be reached."""
        return read_lineage(self._storage)

    def rescale(self, parallelism: int, *, timeout: float = 60.0) -> Rescaled:
        """Let the running job go on with so many partitions, in the same process; `timeout`: seconds to wait for it."""
        idle = f"start it with the parallelism that it is to have: penstock run APP.py --parallelism {parallelism}"
        answer = ask_driver(self._storage, "rescale", timeout, idle=idle, parallelism=parallelism)
        told = answer.result
        return Rescaled(
            before=told["before"],
            parallelism=told["parallelism"],
            downtime=told["downtime_ms"] / 1000,
            message=answer.message,
        )

"""The jobs that a server answers for. Each is followed by a task: it looks for new epochs as long as somebody asks for them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.errors import ConfigError, PenstockError, did_you_mean
from penstock.ids import Epoch
from penstock.jobs.listing import find_jobs
from penstock.query.catalog import Access, Catalog
from penstock.query.errors import EpochNotReachedError, QueryError, UnknownJobError
from penstock.query.reader import LOOK_EVERY_S, StateReader
from penstock.query.reading import Reading
from penstock.server.metrics.measures import Measures
from penstock.server.requested import RequestBook
from penstock.server.streams import Streams
from penstock.storage import Storage, open_storage

log = logging.getLogger("penstock.server")

IDLE_S = 2.0
"""After so long without a query no view of a store is kept open."""

LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where a server reads. `replica`: from stores of its own; `key_groups`: only these."""

    storages: tuple[str, ...]
    local_dir: str | None = None
    replica: bool = False
    key_groups: range | None = None
    access: Access = field(default_factory=Access)


class ServedJob:
    """One job: what is read of it, and the task that looks for newer epochs."""

    def __init__(self, storage: Storage, sources: Sources) -> None:
        self.storage = storage
        self.reader = StateReader(
            storage, local_dir=sources.local_dir, replica=sources.replica, key_groups=sources.key_groups, look_every_s=3600.0
        )
        self.catalog = Catalog(sources.access)
        self.name = self.reader.job.name
        self.streams = Streams()
        self.requests = RequestBook()
        self.problem: QueryError | None = None
        self._asked = 0.0
        self._turned = asyncio.Event()
        self._wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._follow())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self.reader.close)

    async def reading(self, *, at: Epoch | None = None, least: Epoch | None = None, wait_s: float = 0.0) -> Reading:
        """State to read, to be closed: the newest, at an epoch that is kept, or at least at one."""
        if at is not None:
            return await asyncio.to_thread(self.reader.at, at)
        found = await self._newest()
        deadline = time.monotonic() + wait_s
        while least is not None and found.epoch < least:
            found.close()
            left = deadline - time.monotonic()
            if left <= 0:
                raise EpochNotReachedError(
                    f"epoch {least} is not committed: the newest is {found.epoch}", hint="wait longer, with wait="
                )
            await self.turn(left)
            found = await self._newest()
        return found

    async def turn(self, timeout_s: float) -> None:
        """Until there has been a look, or time is up."""
        self._asked = time.monotonic()
        self._wanted.set()
        try:
            await asyncio.wait_for(self._turned.wait(), timeout_s)
        except TimeoutError:
            pass

    async def _newest(self) -> Reading:
        self._asked = time.monotonic()
        found = self.reader.latest()
        if found is None:
            self._wanted.set()
            await self.turn(LONGEST_WAIT_S)
            found = self.reader.latest()
            if found is None:
                raise self.problem or EpochNotReachedError("the job's state could not be read in time")
        return found

    async def _look(self) -> None:
        while True:
            if time.monotonic() - self._asked > IDLE_S:
                self.reader.rest()
                self._wanted.clear()
                await self._wanted.wait()
            try:
                await asyncio.to_thread(self.reader.refresh)
                self.problem = None
            except QueryError as error:
                self.problem = error
            except (PenstockError, OSError) as error:
                log.warning("job %s cannot be read now: %s", self.name, error)
                self.problem = QueryError("the job's storage cannot be read now", hint="see the server's log")
                self.problem.retry_after_s = 1.0
            turned, self._turned = self._turned, asyncio.Event()
            turned.set()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _follow(self) -> None:
        """Keep stores of one's own up to date."""
        while True:
            if self.reader.follows:
                try:
                    await asyncio.to_thread(self.reader.follow)
                except (PenstockError, OSError) as error:
                    log.warning("job %s cannot be followed now: %s", self.name, error)
            await asyncio.sleep(LOOK_EVERY_S)


class ServedJobs:
    """All jobs of a server, by name."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.measures = Measures()
        self._jobs: dict[str, ServedJob] = {}

    def start(self) -> None:
        """Find the jobs, and follow them."""
        for storage in self._found(self.sources.storages):
            job = ServedJob(storage, self.sources)
            if job.name in self._jobs:
                raise ConfigError(
                    f"there are two jobs named {job.name!r}",
                    detail=f"{self._jobs[job.name].storage.uri}\n{storage.uri}",
                    hint="give their storages to servers of their own",
                )
            self._jobs[job.name] = job
            job.start()

    async def stop(self) -> None:
        await asyncio.gather(*(job.stop() for job in self._jobs.values()))
        self._jobs.clear()

    def __getitem__(self, name: str) -> ServedJob:
        found = self._jobs.get(name)
        if found is None:
            raise UnknownJobError(f"no job {name!r:.100} is served here", hint=did_you_mean(name, self._jobs))
        return found

    def all(self) -> list[ServedJob]:
        return [self._jobs[name] for name in sorted(self._jobs)]

    @staticmethod
    def _found(places: Iterable[str]) -> Iterable[Storage]:
        for place in places:
            storage = open_storage(os.fspath(place))
            found = list(find_jobs(storage))
            if not found:
                raise ConfigError(f"{storage.uri} holds no job", hint="give storages of jobs, or folders of such")
            yield from found

"""Drivers and standbys under random trouble, in virtual time: one of them finishes the job, exactly, and none has left before.

Decisions and leases are the real ones (`Watch`, `observe`, `rest_s`, `SignOfLife`), over a storage in memory. Epochs are a
model: a manifest made exclusively, output staged before it and published after it.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, BinaryIO, Literal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import JobConfig
from penstock.diagnosis.failures import nature_of
from penstock.epochs.availability.lease_holder import SignOfLife
from penstock.epochs.availability.standby import End, TakeOver, Watch, observe, rest_s
from penstock.errors import AlreadyExistsError, FencedError, NotFoundError, StorageError
from penstock.ids import Epoch, Term
from penstock.jobs import paths
from penstock.jobs.listing import epochs_in
from penstock.storage import Listed

LEASE = 10.0
HANG_AFTER = 40.0
EPOCHS = 40
"""Of data, 1 s each."""
PATIENCE = 4
"""Failures in a row after which a driver gives up."""
STEP = 0.25

Steps = Generator[float, None, None]
"""What a process does; yields for how long it does nothing else."""


class World:
    """The time, and what works."""

    def __init__(self) -> None:
        self.now = 0.0
        self.objects: dict[str, bytes] = {}
        self.fails_until = 0.0
        self.hangs_until = 0.0
        self.sink_hangs_until = 0.0
        self.published: dict[int, int] = {}


class Memory:
    """A storage in memory, that fails when it is told to."""

    uri = "memory:"

    def __init__(self, world: World) -> None:
        self._world = world

    def _objects(self) -> dict[str, bytes]:
        if self._world.now < self._world.fails_until:
            raise StorageError("the storage fails")
        return self._world.objects

    def create(self, path: str, data: bytes, *, durable: bool = True) -> None:
        if path in self._objects():
            raise AlreadyExistsError(path)
        self._objects()[path] = data

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._objects()[path] = data

    def read(self, path: str) -> bytes:
        try:
            return self._objects()[path]
        except KeyError:
            raise NotFoundError(path) from None

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self.read(path)[offset : offset + length]

    def exists(self, path: str) -> bool:
        return path in self._objects()

    def list(self, prefix: str = "") -> Iterator[Listed]:
        return iter([Listed(path, 0, 0) for path in sorted(self._objects()) if path.startswith(f"{prefix}/")])

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._objects().pop(path, None)

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not needed")


@dataclass
class Process:
    """A standby; `driver`: of the term that it drives."""

    name: str
    world: World
    alive: bool = True
    stopped_until: float = 0.0
    ended: str = ""
    drove: list[int] = field(default_factory=list)
    life: SignOfLife | None = None
    wakes: float = 0.0
    beats: float = 0.0
    steps: Steps = field(init=False)

    def __post_init__(self) -> None:
        self.storage: Any = Memory(self.world)
        self.steps = self._run()

    def advance(self) -> None:
        world = self.world
        if not self.alive or self.ended or world.now < self.stopped_until:
            return
        if world.now >= self.wakes:
            try:
                self.wakes = world.now + next(self.steps)
            except StopIteration:
                pass
        if self.life is not None and world.now >= max(self.beats, world.hangs_until):
            self.beats = world.now + LEASE / 4
            self.life.renew()

    # --- as `Driver.run` and `stand_by` do -----------------------------------------------------------------------------

    def _run(self) -> Steps:
        failures, rest = 0, 0.0
        while True:
            watch, rested = Watch(LEASE), self.world.now + rest
            while True:
                began = self.world.now
                yield from self._answered()
                try:
                    verdict = watch.look(observe(self.storage), began, self.world.now)
                    if isinstance(verdict, End):
                        self.ended = "finished" if verdict.finished else "stopped"
                        return
                    if isinstance(verdict, TakeOver) and self.world.now >= rested:
                        break
                except StorageError:
                    watch.blind()
                yield 1.0
            before = len(self.drove)
            try:
                yield from self._drive(verdict)
                self.ended = "finished"
                return
            except FencedError:
                failures, rest = 0, 0.0
            except StorageError as error:
                failures = 1 if len(self.drove) > before else failures + 1
                rest = rest_s(failures, nature_of(error), LEASE)

    def _answered(self) -> Steps:
        while self.world.now < self.world.hangs_until:
            yield STEP

    # --- as the epoch loop does ------------------------------------------------------------------------------------------

    def _drive(self, verdict: TakeOver) -> Steps:
        config = JobConfig(
            name="model", storage="memory", lease=timedelta(seconds=LEASE), hang_after=timedelta(seconds=HANG_AFTER)
        )
        life = _Life(self.storage, config, after=verdict.after, watched=verdict.lease, monotonic=lambda: self.world.now)
        try:
            yield from self._answered()
            term = life.take_term(self.storage)
            self.life = life
            head = yield from self._take_over(life, term)
            life.ready()
            failures = 0
            while self._data(head) < EPOCHS:
                life.touch()
                try:
                    yield from self._epoch(head + 1, term, data=True)
                    head, failures = head + 1, 0
                    self.drove.append(head)
                except StorageError:
                    failures += 1
                    if failures > PATIENCE:
                        raise
                    yield float(2**failures)
                    head = yield from self._regroup(head, term)
            yield from self._answered()
            life.release("finished")
        except StorageError:
            life.release("failed")
            raise
        finally:
            self.life = None
            life.close()

    def _take_over(self, life: SignOfLife, term: Term) -> Generator[float, None, int]:
        while True:
            yield from self._answered()
            head = self._head()
            yield 1.0
            if head and not self.storage.exists(paths.done(Epoch(head))):
                yield from self._publish(head)
            yield 0.5
            yield from self._answered()
            life.check_silent()
            try:
                yield from self._epoch(head + 1, term, data=False, committed=life.committed)
                return head + 1
            except FencedError:
                if life.gives_way or self._manifest(self._head())["term"] >= term:
                    raise

    def _epoch(self, number: int, term: Term, *, data: bool, committed: Any = lambda: None) -> Steps:
        """Stage, make the manifest, publish, done."""
        yield 1.0
        yield from self._answered()
        staged = f"staged/{number}-{term}"
        if data:
            self.storage.replace(staged, b"")
        manifest = msgspec.json.encode({"term": term, "data": data, "staged": staged if data else None})
        try:
            self.storage.create(paths.manifest(Epoch(number)), manifest)
        except AlreadyExistsError:
            if self._manifest(number)["term"] != term:
                raise FencedError("another was first") from None
        if self._head() > number:
            raise FencedError("another has gone on")
        committed()
        yield from self._publish(number)

    def _publish(self, number: int) -> Steps:
        """Commit the sink, which may hang; what was staged goes."""
        manifest = self._manifest(number)
        if manifest["data"]:
            while self.world.now < self.world.sink_hangs_until:
                yield STEP
            yield from self._answered()
            if not self.storage.exists(paths.done(Epoch(number))):
                self.storage.read(manifest["staged"])
            self.world.published[number] = self.world.published.get(number, 0) + 1  # idempotent: by the epoch's number
            self.storage.delete([manifest["staged"]])
        try:
            self.storage.create(paths.done(Epoch(number)), b"")
        except AlreadyExistsError:
            pass

    def _regroup(self, head: int, term: Term) -> Generator[float, None, int]:
        """After a failure: was the manifest made after all?"""
        yield from self._answered()
        newest = self._head()
        if newest > head:
            if self._manifest(newest)["term"] != term:
                raise FencedError("another has gone on")
            yield from self._publish(newest)
        return newest

    def _head(self) -> int:
        return epochs_in(self.storage).newest

    def _manifest(self, number: int) -> Any:
        return msgspec.json.decode(self.storage.read(paths.manifest(Epoch(number))))

    def _data(self, head: int) -> int:
        return sum(self._manifest(number)["data"] for number in range(1, head + 1))


class _Life(SignOfLife):
    """Beats when the model lets it: the thread only writes the last word."""

    def _keep(self) -> None:
        self._stopped.wait()
        if self._last_word:
            self.renew(self._last_word)


# --- trouble ------------------------------------------------------------------------------------------------------------------

Kind = Literal["kill", "stop", "storage fails", "storage hangs", "sink hangs"]


@dataclass(frozen=True)
class Fault:
    at: float
    kind: Kind
    lasts: float
    of_driver: bool
    """Of a process: the one that drives, or another."""


def faults(*kinds: Kind, longest: float = 120.0) -> st.SearchStrategy[list[Fault]]:
    fault = st.builds(
        Fault,
        at=st.integers(0, 240).map(lambda at: at / 2),
        kind=st.sampled_from(kinds),
        lasts=st.sampled_from([lasts for lasts in (1.0, 4.0, 9.0, 12.0, 30.0, 60.0, 120.0) if lasts <= longest]),
        of_driver=st.booleans(),
    )
    return st.lists(fault, max_size=8).map(lambda found: sorted(found, key=lambda fault: fault.at))


def play(script: list[Fault]) -> tuple[World, list[Process]]:
    """Three standbys, one of which comes to drive. Kills leave one of them."""
    world = World()
    processes = [Process(f"p{number}", world, wakes=number * 0.5) for number in range(3)]
    left = list(script)
    while world.now < 1500.0 and not all(process.ended or not process.alive for process in processes):
        while left and left[0].at <= world.now:
            act(left.pop(0), world, processes)
        for process in processes:
            process.advance()
        world.now += STEP
    return world, processes


def act(fault: Fault, world: World, processes: list[Process]) -> None:
    until = world.now + fault.lasts
    if fault.kind == "storage fails":
        world.fails_until = max(world.fails_until, until)
    elif fault.kind == "storage hangs":
        world.hangs_until = max(world.hangs_until, until)
    elif fault.kind == "sink hangs":
        world.sink_hangs_until = max(world.sink_hangs_until, until)
    else:
        able = [process for process in processes if process.alive and not process.ended]
        wanted = [process for process in able if (process.life is not None) == fault.of_driver] or able
        if wanted and fault.kind == "stop":
            wanted[0].stopped_until = max(wanted[0].stopped_until, until)
        elif wanted and len(able) > 1:
            wanted[0].alive = False


def check(world: World, processes: list[Process]) -> None:
    told = [f"{process.name}: alive {process.alive}, ended {process.ended!r}, drove {process.drove}" for process in processes]
    assert all(process.ended == "finished" for process in processes if process.alive), told
    names = [path for path in sorted(world.objects) if path.startswith("epochs/") and path.endswith(".json")]
    found = [msgspec.json.decode(world.objects[name]) for name in names]
    data = [number for number, manifest in enumerate(found, 1) if manifest["data"]]
    assert len(data) == EPOCHS
    assert sorted(world.published) == data, "each epoch's output is there"
    terms = [manifest["term"] for manifest in found]
    assert terms == sorted(terms), "one driver after another"


@given(faults("kill", "stop", "storage fails", "storage hangs", "sink hangs"))
def test_one_of_them_finishes_the_job_and_none_has_left(script: list[Fault]) -> None:
    check(*play(script))


@given(faults("storage hangs", "sink hangs", longest=30.0))
def test_a_driver_that_only_waits_is_not_replaced(script: list[Fault]) -> None:
    """The storage hangs for all of them alike, or the sink for less than `hang_after`."""
    world, processes = play(script)
    check(world, processes)
    assert [bool(process.drove) for process in processes].count(True) == 1


def test_without_trouble_it_takes_as_long_as_its_epochs() -> None:
    world, processes = play([])
    check(world, processes)
    assert world.now < LEASE + 2 * EPOCHS

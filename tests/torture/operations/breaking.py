"""The faults of a campaign, carried out: each is a context that lasts for as long as the fault does."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.littering import CONTENTS, NAMES
from tests.spark.standalone import Cluster
from tests.torture.operations import disk, object_store, switch
from tests.torture.operations.faults import LOCAL, S3, Fault
from tests.torture.operations.jobs import Member, TorturedJob
from tests.torture.operations.object_store import ObjectStore
from tests.torture.operations.switch import Switch
from tests.torture.processes import kill

WORKERS = 2
FOLDERS = (
    *("job", "job/epochs", "job/terms", "job/state", "job/state/s1/p0", "job/requests", "job/answers", "job/programs"),
    *("out", "out/_log"),
)
"""Where strangers leave files: in the job's storage, and where a file sink publishes."""


class NobodyError(Exception):
    """There is nobody to hit at the moment."""


class Operations:
    """All that can be broken. Faults are carried out one after another."""

    def __init__(
        self, cluster: Cluster, store: ObjectStore, local: Path, toggle: Switch, jobs: Mapping[str, TorturedJob], seed: int
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._local = local
        self._switch = toggle
        self._jobs = jobs
        self._dice = random.Random(seed)

    @contextmanager
    def suffer(self, fault: Fault) -> Iterator[str]:
        """While the fault lasts; what exactly was hit. `NobodyError`: there is no such process now."""
        hit = getattr(self, "_" + fault.kind.replace("-", "_"))
        with hit(fault) as what:
            yield what

    # --- storages ------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _outage(self, fault: Fault) -> Iterator[str]:
        with self._trouble(fault, local="fail", s3="refused") as what:
            yield what

    @contextmanager
    def _silence(self, fault: Fault) -> Iterator[str]:
        with self._trouble(fault, local="hang", s3="unavailable") as what:
            yield what

    @contextmanager
    def _slow(self, fault: Fault) -> Iterator[str]:
        with self._trouble(fault, local="slow", s3="slow", delay_s=self._dice.uniform(0.2, 1.5)) as what:
            yield what

    @contextmanager
    def _lost(self, fault: Fault) -> Iterator[str]:
        with self._trouble(fault, local="lost", s3="lost", share=self._dice.uniform(0.1, 0.4)) as what:
            yield what

    @contextmanager
    def _trouble(
        self, fault: Fault, *, local: switch.Mode, s3: object_store.Mode, delay_s: float = 0.0, share: float = 1.0
    ) -> Iterator[str]:
        figures = f"{delay_s:.1f} s a call" if delay_s else f"{share:.0%} of calls"
        if fault.job == LOCAL:
            self._switch.turn_on(switch.Trouble(str(self._local), local, delay_s, share))
            try:
                yield f"folder: {local}, {figures}"
            finally:
                self._switch.turn_off()
        else:
            self._store.proxy.trouble = object_store.Trouble(s3, delay_s, share)
            try:
                yield f"object store: {s3}, {figures}"
            finally:
                self._store.proxy.trouble = object_store.Trouble()

    @contextmanager
    def _stray(self, fault: Fault) -> Iterator[str]:
        names = [name for name in NAMES if fault.job != S3 or b"\n" not in name]  # the S3 server here has no keys of two lines
        left = [(self._dice.choice(FOLDERS), name, self._dice.choice(CONTENTS)) for name in self._dice.sample(names, 6)]
        for folder, name, content in left:
            if fault.job == S3:
                self._store.put(f"{folder}/{name.decode(errors='replace')}", content)
            else:
                place = self._local / folder
                place.mkdir(parents=True, exist_ok=True)
                (place / _text(name)).write_bytes(content)
        if fault.job == S3:
            self._store.put(f"{self._dice.choice(FOLDERS)}//empty segment.json", b"{}")
        yield ", ".join(f"{folder}/{name.decode(errors='replace')!r:.40}" for folder, name, _ in left)

    @contextmanager
    def _full(self, fault: Fault) -> Iterator[str]:
        disk.fill(self._local)
        try:
            yield "disk"
        finally:
            disk.relieve(self._local)

    # --- the cluster ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _master(self, fault: Fault) -> Iterator[str]:
        self._cluster.kill_master()
        try:
            yield "the master"
        finally:
            self._cluster.start_master()
            self._cluster.wait_for_workers()  # before that, nothing has happened to the jobs

    @contextmanager
    def _worker(self, fault: Fault, *, host: bool = False) -> Iterator[str]:
        number = self._dice.randrange(WORKERS)
        self._cluster.kill_worker(number, host=host)
        try:
            yield f"worker {number}{' and its executors' if host else ''}"
        finally:
            self._cluster.start_worker(number)

    @contextmanager
    def _host(self, fault: Fault) -> Iterator[str]:
        with self._worker(fault, host=True) as what:
            yield what

    @contextmanager
    def _executor(self, fault: Fault) -> Iterator[str]:
        found = self._jobs[fault.job].executors(self._cluster.sessions)
        if not found:
            raise NobodyError("its driver has no executor")
        victim = self._dice.choice(found)
        kill(victim.pid)
        yield f"process {victim.pid}"

    # --- drivers -------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _freeze_driver(self, fault: Fault) -> Iterator[str]:
        driver = self._jobs[fault.job].driver()
        if driver is None:
            raise NobodyError("nobody drives it")
        with self._frozen([driver]) as what:
            yield what

    @contextmanager
    def _freeze_standby(self, fault: Fault) -> Iterator[str]:
        standbys = self._jobs[fault.job].standbys()
        if not standbys:
            raise NobodyError("nobody stands by")
        with self._frozen(self._dice.sample(standbys, self._dice.randint(1, len(standbys)))) as what:
            yield what

    @contextmanager
    def _frozen(self, members: list[Member]) -> Iterator[str]:
        jvm = self._dice.random() < 0.5
        for member in members:
            member.send(signal.SIGSTOP, jvm=jvm)
        try:
            yield f"{', '.join(member.name for member in members)}{' with its JVM' if jvm else ''}"
        finally:
            for member in members:
                member.send(signal.SIGCONT, jvm=True)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")

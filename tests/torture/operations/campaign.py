"""One campaign: two jobs run on a cluster while one fault after another is done to it. NobodyError helps them.

After each fault both jobs must commit anew, without the campaign lifting a finger; that they do so late, or never, counts as
stuck, and so does a process that ends before its job has. In the end the input ends, the jobs finish by themselves, and what they
wrote is compared with what they should have written.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from penstock.storage import open_storage
from tests.spark.standalone import Cluster
from tests.torture.operations.breaking import WORKERS, NobodyError, Operations
from tests.torture.operations.disk import small_disk
from tests.torture.operations.faults import LOCAL, S3, Blow, Fault, blows
from tests.torture.operations.jobs import ROOT, TorturedJob
from tests.torture.operations.object_store import CREDENTIALS, ObjectStore, object_store
from tests.torture.operations.switch import VARIABLE, Switch
from tests.torture.oracle import JOBS

MEMBERS = 3
"""Processes of each job: a driver and two standbys."""

LEASE_S = 4.0
DISK_MB = 256
EVENTS_A_SECOND = 150
STUCK_S = 120.0
"""A job that has not committed so long after a fault is stuck."""

NOBODY_S = 60.0
START_S = 240.0
END_S = 300.0
POLL_S = 0.1
SETTLED = 10
"""Epochs that a job commits after a fault until it has recovered: those before had begun when it happened (8 run ahead of their
commit), so that this one was planned and run later."""

LOCAL_JOBS, S3_JOBS = ("panes", "buffers", "ledger"), ("panes", "buffers")


@dataclass(slots=True)
class Outcome:
    """What became of a campaign."""

    faults: int = 0
    lost: int = 0
    duplicated: int = 0
    stuck: int = 0
    problems: list[str] = field(default_factory=list)
    recoveries: list[tuple[float, Blow]] = field(default_factory=list)
    take_overs: int = 0
    epochs: dict[str, int] = field(default_factory=dict)
    events: int = 0


class StuckError(Exception):
    """Somebody would have to help."""


class Tap:
    """Lets input through, so many events a second for each job, until it is told that these were the last."""

    def __init__(self, jobs: list[TorturedJob]) -> None:
        self._jobs = jobs
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.events = 0

    def __enter__(self) -> Tap:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._thread.join()

    def close(self) -> None:
        """These were the last."""
        self.__exit__()
        for job in self._jobs:
            job.open_tap(self.events, last=True)

    def _run(self) -> None:
        while not self._closed.wait(0.2):
            self.events += EVENTS_A_SECOND // 5
            for job in self._jobs:
                job.open_tap(self.events)


class Campaign:
    """A campaign under way."""

    def __init__(self, folder: Path, seed: int, wanted: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._seed = seed
        self._wanted = wanted
        self._dice = random.Random(seed)
        self._say = say
        self.outcome = Outcome()

    def run(self) -> Outcome:
        with ExitStack() as held:
            store = held.enter_context(object_store(self._seed))
            disk = self._folder / "disk"
            can_be_full = held.enter_context(small_disk(disk, DISK_MB))
            if not can_be_full:
                self._say("skipped: the full disk, as only root may mount a small one")
            switch = Switch(self._folder / "switch.json")
            environment = self._environment(switch)
            cluster = held.enter_context(
                Cluster(self._made("spark"), workers=WORKERS, cores=16, memory="12g", environment=environment)
            )
            jobs = self._jobs(store, disk)
            for job in jobs.values():
                held.callback(job.end)
                job.start(MEMBERS, cluster.url, LEASE_S, environment)
            operations = Operations(cluster, store, disk, switch, jobs, self._seed)
            plan = blows(self._seed, self._wanted, without=frozenset() if can_be_full else frozenset({"full"}))
            with Tap(list(jobs.values())) as tap:
                try:
                    self._wait_for_commits(jobs, dict.fromkeys(jobs, 0), START_S)
                    self._say("both jobs run")
                    for blow in plan:
                        self._strike(operations, jobs, blow)
                except StuckError as stuck:
                    self._give_up(stuck)
                tap.close()
            self._end(jobs)
            self._judge(jobs, tap.events)
        return self.outcome

    # --- what it is all made of ----------------------------------------------------------------------------------------------

    def _made(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def _environment(self, switch: Switch) -> dict[str, str]:
        site = ROOT / "tests" / "torture" / "operations" / "site"
        return {
            **CREDENTIALS,
            VARIABLE: str(switch.path),
            "PYTHONPATH": ":".join(map(str, (site, ROOT / "src", ROOT))),
            "PYSPARK_PYTHON": sys.executable,
            "PENSTOCK_LOCAL_DIR": str(self._made("state")),
            "SPARK_LOCAL_DIRS": str(self._made("blocks")),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # some twenty Javas that start again and again
            "TMPDIR": str(self._made("tmp")),
        }

    def _jobs(self, store: ObjectStore, disk: Path) -> dict[str, TorturedJob]:
        def fetched() -> Path:
            """The output in the bucket, as a folder."""
            storage, to = open_storage(store.uri("out", direct=True)), self._made("fetched")
            for listed in storage.list():
                path = to / listed.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(storage.read(listed.path))
            return to

        local, s3 = JOBS[self._dice.choice(LOCAL_JOBS)], JOBS[self._dice.choice(S3_JOBS)]
        out = disk / ("out.db" if local.name == "ledger" else "out")
        jobs = [
            TorturedJob(LOCAL, local, self._folder, str(disk / "job"), str(out), open_storage(disk / "job"), lambda: out),
            TorturedJob(
                S3, s3, self._folder, store.uri("job"), store.uri("out"), open_storage(store.uri("job", direct=True)), fetched
            ),
        ]
        self._say(f"{local.name} on a local disk, {s3.name} on S3; of each a driver and {MEMBERS - 1} standbys")
        return {job.name: job for job in jobs}

    # --- faults --------------------------------------------------------------------------------------------------------------

    def _strike(self, operations: Operations, jobs: Mapping[str, TorturedJob], blow: Blow) -> None:
        self._watch(jobs, blow[0].after_s)
        with ExitStack() as held:
            began = time.monotonic()
            for fault in sorted(blow, key=lambda fault: -fault.seconds):  # the longest ends last
                what = self._begin(held.enter_context(ExitStack()), operations, jobs, fault)
                self.outcome.faults += 1
                self._say(f"{self.outcome.faults}. {fault}: {what}")
                held.callback(self._watch, jobs, fault.seconds, began)
        over = time.monotonic()
        marks = {name: job.newest_epoch() for name, job in jobs.items()}
        took = self._wait_for_commits(jobs, marks, STUCK_S)
        self.outcome.recoveries.append((time.monotonic() - over, blow))
        self._say("   recovered: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in took.items()))

    def _begin(self, held: ExitStack, operations: Operations, jobs: Mapping[str, TorturedJob], fault: Fault) -> str:
        """A fault that hits somebody: it waits for the one that it is to hit. What it has hit."""
        deadline = time.monotonic() + NOBODY_S
        while True:
            try:
                return held.enter_context(operations.suffer(fault))
            except NobodyError as nobody:
                if time.monotonic() > deadline:
                    raise StuckError(f"{fault} hits nobody: {nobody}") from nobody
                self._watch(jobs, POLL_S)

    def _watch(self, jobs: Mapping[str, TorturedJob], seconds: float, since: float | None = None) -> None:
        """Let time pass. `StuckError` if a process ends meanwhile."""
        deadline = (time.monotonic() if since is None else since) + seconds
        while True:
            for job in jobs.values():
                for member in job.members:
                    if (code := member.process.poll()) is not None:
                        raise StuckError(f"{member.name} has ended with {code}:\n{member.told()}")
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(POLL_S, left))

    def _wait_for_commits(self, jobs: Mapping[str, TorturedJob], marks: Mapping[str, int], limit_s: float) -> dict[str, float]:
        """How long each job has taken to commit beyond its mark."""
        began = time.monotonic()
        took: dict[str, float] = {}
        while len(took) < len(jobs):
            for name, job in jobs.items():
                if name not in took and job.newest_epoch() >= marks[name] + SETTLED:
                    took[name] = time.monotonic() - began
            if time.monotonic() - began > limit_s:
                waiting = [job for name, job in jobs.items() if name not in took]
                said = "\n".join(f"--- {member.name}:\n{member.told()}" for job in waiting for member in job.members)
                raise StuckError(f"{', '.join(job.name for job in waiting)}: no commit for {limit_s:.0f} s\n{said}")
            self._watch(jobs, POLL_S)
        return took

    # --- the end -------------------------------------------------------------------------------------------------------------

    def _end(self, jobs: Mapping[str, TorturedJob]) -> None:
        """The input has ended: all processes end by themselves, and well. Those of a job that was stuck may do so yet."""
        self._say("the input has ended")
        deadline = time.monotonic() + END_S
        for member in [member for job in jobs.values() for member in job.members]:
            while (code := member.process.poll()) is None and time.monotonic() < deadline:
                time.sleep(POLL_S)
            if code != 0 and not self.outcome.stuck:
                how = "has not ended" if code is None else f"has ended with {code}"
                self._give_up(StuckError(f"the input has ended, and {member.name} {how}:\n{member.told()}"))

    def _judge(self, jobs: Mapping[str, TorturedJob], events: int) -> None:
        """Also if it was given up: what is not there is lost."""
        self.outcome.events = events
        for job in jobs.values():
            self.outcome.epochs[job.name] = job.newest_epoch()
            self.outcome.take_overs += job.take_overs()
            lost, duplicated = job.judge(events)
            self.outcome.lost += sum(lost.values())
            self.outcome.duplicated += sum(duplicated.values())
            if lost or duplicated:
                self.outcome.problems.append(f"{job.name}: lost {lost.most_common(5)}, duplicated {duplicated.most_common(5)}")

    def _give_up(self, stuck: StuckError) -> None:
        self.outcome.stuck += 1
        self.outcome.problems.append(str(stuck))
        self._say(f"stuck: {stuck}")

"""How long a job stands still when a part of it is killed (SIGKILL): from the kill to the first epoch committed after it.

- worker: a Python worker of a local Spark;
- executor: one of two executors of a standalone cluster (a master, two workers with a core each, all on this machine);
- jvm: the JVM of a local Spark's driver;
- driver: driver and JVM, with a supervisor that starts them again at once; on a local Spark and on the cluster;
- standby: driver and JVM, with a standby beside them; likewise. On the cluster, whose workers have two cores each then, each of
  the two holds two cores.

Epochs that were under way may be committed just after the kill: what counts is the end of the longest pause between commits that
began before the kill or within five seconds of it. The job counts a steady stream of events by key, exactly once to files; its
whole output is checked. `Spark's own` is the same kill in a program that runs nothing but small RDD jobs on a Spark with its own
settings, measured in the same way: for a driver that is what Spark takes to start and to run a first job.

`--only CASE …` measures some of them, `--repeat N` each N times and shows the median.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from harness.contenders import ContenderError
from harness.faults import Cluster, Running, kill, kill_group, recovered
from harness.places import fresh_folder
from harness.progress import say
from harness.published import published_json
from harness.reference import MismatchError, check_counts
from harness.report import Report, parser_of, table_of

LOCAL = "local[2,4]"
LEASE = 10
KEYS = 1_000
WARM = 40
"""Epochs to commit before the kill."""

AIMS: dict[str, float | None] = {
    "worker": None,
    "executor": 5,
    "jvm": None,
    "driver": 12,
    "driver-cluster": 12,
    "standby": LEASE + 3,
    "standby-cluster": LEASE + 3,
}
"""Cases, and what they are to stay below, in seconds."""
BARE = ("worker", "executor", "driver", "driver-cluster")
"""Those that a program without Penstock is measured in, too."""


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=list(AIMS), default=list(AIMS), metavar="CASE")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--rate", type=int, default=500, help="events a second")
    parser.add_argument("--no-bare", action="store_true", help="leave Spark's own times out")
    parser.add_argument("--source", type=Path, help="measure another Penstock: the folder that has the package")
    arguments = parser.parse_args()

    report = Report("recovery")
    rows = []
    for case in arguments.only:
        ours = _median(case, "penstock", arguments, report)
        bare = _median(case, "bare", arguments, report) if case in BARE and not arguments.no_bare else None
        aim = AIMS[case]
        rows.append([case, _shown(ours), "" if aim is None else f"{aim:g}", _shown(bare)])
        if ours is not None:
            report.rates[f"{case}_s"] = round(ours, 2)
        if bare is not None:
            report.rates[f"{case}_bare_s"] = round(bare, 2)
        if aim is not None:
            report.ratio(case, ours, aim)
    report.notes.append(
        f"the lease is {LEASE} s; a standby takes over when it has seen no beat for so long, and a beat is due every quarter"
    )
    report.notes.append("the figures at the end are ours over the aim: below 1 is met")
    columns = ["killed", "s to the next commit", "aim", "Spark's own"]
    return report.finish(table_of("Recovery times", columns, rows), arguments.json)


def _median(case: str, who: str, arguments: argparse.Namespace, report: Report) -> float | None:
    found: list[float] = []
    for number in range(arguments.repeat):
        label = f"{case}, {who}" + (f", {number + 1} of {arguments.repeat}" if arguments.repeat > 1 else "")
        say(f"{label}: starting")
        folder = fresh_folder("recovery", f"{case}-{who}-{number}")
        try:
            found.append(Trial(case, who == "bare", folder, arguments).run())
        except (ContenderError, MismatchError) as error:
            report.problems.append(f"{label}: {error}")
            return None
        say(f"{label}: {found[-1]:.2f} s")
    report.details[f"{case}, {who}"] = [round(seconds, 2) for seconds in found]
    return statistics.median(found)


def _shown(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"


class Trial:
    """One kill."""

    def __init__(self, case: str, bare: bool, folder: Path, arguments: argparse.Namespace) -> None:
        self._part, _, place = case.partition("-")
        self._on_cluster = place == "cluster" or self._part == "executor"
        self._bare = bare
        self._folder = folder
        self._source = arguments.source
        self._rate = arguments.rate
        self._seconds = 45 if self._on_cluster else 35
        if bare:
            self._seconds = 25
        self._drivers: list[Running] = []

    def run(self) -> float:
        with ExitStack() as held:
            cores = 2 if self._part == "standby" else 1
            self._cluster = held.enter_context(_cluster(self._folder, cores)) if self._on_cluster else None
            held.callback(lambda: [driver.close() for driver in self._drivers])
            first = self._start("first")
            first.wait_for_commits(5)
            standby = None
            if self._part == "standby":
                standby = self._start("standby", standby=True)
                standby.wait_for(lambda: standby.said("stands by"), "standing by")
                seen = len(first.commits())
                first.wait_for_commits(seen + WARM)
                _wait_until_ready(standby)
            first.wait_for_commits(WARM)
            killed = self._kill(first)
            if self._part == "driver":
                first.process.wait()
                self._start("second")
            last = self._drivers[-1]
            if self._bare:
                last.wait_for(lambda: any(at > killed for at in last.commits()), "job after the kill")
            last.finish()
            seconds = recovered([at for driver in self._drivers for at in driver.commits()], killed)
        if not self._bare:
            self._check()
        return seconds

    def _start(self, name: str, *, standby: bool = False) -> Running:
        parameters: dict[str, Any] = {
            "out": str(self._folder),
            "master": LOCAL if self._cluster is None else self._cluster.url,
            "standby": standby,
            "lease": LEASE,
            "rate": self._rate,
            "seconds": self._seconds,
            "keys": KEYS,
        }
        module = "peers.spark_jobs" if self._bare else "harness.penstock_recovery"
        self._drivers.append(Running(module, parameters, self._folder, name, self._source))
        return self._drivers[-1]

    def _kill(self, driver: Running) -> float:
        if self._part == "worker":
            return kill(driver.find(r"-m (pyspark|penstock\.executors\.spark)\.daemon")[-1])
        if self._part == "executor":
            assert self._cluster is not None
            return kill(driver.find("CoarseGrainedExecutorBackend", below=self._cluster.sessions)[0])
        if self._part == "jvm":
            return kill(driver.find("SparkSubmit")[0])
        jvms = driver.find("SparkSubmit")
        killed = kill(driver.process.pid)
        for jvm in jvms:
            kill(jvm)
        kill_group(driver.process.pid)
        return killed

    def _check(self) -> None:
        """Each event once, counted once."""
        table, _ = published_json(self._folder / "out", ["key", "count", "n"])
        events = self._rate * self._seconds
        if not np.array_equal(np.sort(table["n"].to_numpy()), np.arange(events)):
            raise MismatchError("the output does not have every event once")
        check_counts(np.arange(events) * 7919 % KEYS, table)


def _wait_until_ready(standby: Running) -> None:
    """It has a session with Python workers. (That it says so is not asked for: other commits are measured, too.)"""
    standby.wait_for(lambda: bool(standby.find("SparkSubmit")), "session of the standby")


@contextmanager
def _cluster(folder: Path, cores: int) -> Iterator[Cluster]:
    place = folder / "cluster"
    place.mkdir()
    with Cluster(place, workers=2, cores=cores) as cluster:
        yield cluster


if __name__ == "__main__":
    raise SystemExit(main())

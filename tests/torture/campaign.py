"""One campaign: a driver is started, hurt, started again, until the job is finished; then its output is judged."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.jobs.requests import ask
from penstock.storage import open_storage
from tests.torture.faults import Campaign, Fault, Round
from tests.torture.oracle import JOBS, Job, difference
from tests.torture.processes import kill, kill_session, look, of_session, python_workers

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.01
WAKE_AFTER = (0, 2, 12)
"""After how many epochs of its successor a stopped driver wakes up: at once, soon, when its epochs are long retired."""


@dataclass(slots=True)
class Outcome:
    """What became of a campaign."""

    kills: int = 0
    lost: int = 0
    duplicated: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    epochs: int = 0


class Driver:
    """A driver process, in a session of its own."""

    def __init__(self, campaign: Campaign, folder: Path, number: int, faults: list[Fault], restore_from: str | None) -> None:
        job = JOBS[campaign.job]
        self.stderr = folder / f"driver-{number}.err"
        self.once = folder / f"once-{number}"
        self.once.mkdir()
        for name in ("tmp", "local", "spark"):
            (folder / name).mkdir(exist_ok=True)
        environment = {
            **armed(faults, self.once),
            "PENSTOCK_LOCAL_DIR": str(folder / "local"),
            "SPARK_LOCAL_DIRS": str(folder / "spark"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder / "spark"),
            "TMPDIR": str(folder / "tmp"),
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [sys.executable, str(ROOT / "tests" / "torture" / "jobs" / f"{job.name}.py")]
        command += ["--storage", str(folder / "storage"), "--out", str(output_of(job, folder)), "--input", str(folder / "input")]
        command += ["--master", campaign.master, "--size", str(job.size), "--parallelism", "2"]
        command += ["--from", restore_from] if restore_from is not None else []
        with open(self.stderr, "wb") as errors:
            self.process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def stopped(self) -> bool:
        found = look(self.pid)
        return found is not None and found.state == "T"

    def acted(self, fault: Fault) -> bool:
        return (self.once / fault.place.replace(":", "_")).exists()

    def told(self) -> str:
        """The end of what it said."""
        return self.stderr.read_text(errors="replace")[-3000:]

    def end(self) -> None:
        kill_session(self.pid)
        self.process.wait()


def armed(faults: list[Fault], once: Path) -> dict[str, str]:
    """The environment of a process that is to suffer these faults, each once."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PENSTOCK_FAILPOINTS": ";".join(filter(None, (fault.armed for fault in faults))),
        "PENSTOCK_FAILPOINTS_ONCE": str(once),
    }


def output_of(job: Job, folder: Path) -> Path:
    return folder / ("out.db" if job.name == "ledger" else "out")


def newest_epoch(folder: Path) -> int:
    try:
        names = os.listdir(folder / "storage" / "epochs")
    except FileNotFoundError:
        return 0
    return max((int(match[1]) for name in names if (match := re.fullmatch(r"(\d+)\.json", name))), default=0)


class Run:
    """A campaign under way."""

    def __init__(self, campaign: Campaign, folder: Path, dice: random.Random, say: Callable[[str], None], limit_s: float) -> None:
        self.campaign = campaign
        self.folder = folder
        self.dice = dice
        self.say = say
        self.outcome = Outcome()
        self.deadline = time.monotonic() + limit_s
        self.drivers: list[Driver] = []
        self.sleepers: list[tuple[Driver, int]] = []
        self.savepoint: str | None = None
        self.restore_from: str | None = None

    def run(self) -> Outcome:
        started = time.monotonic()
        job = JOBS[self.campaign.job]
        job.prepare(str(self.folder / "input"), job.size)
        try:
            finished = any(self._round(one) for one in [*self.campaign.rounds, Round()])
            self._wake(everyone=True)
            if not finished and not self.outcome.problems:
                self.outcome.problems.append("the job did not finish")
            self._judge(job)  # also of a job that did not finish: what is not there is lost
        finally:
            for driver in self.drivers:
                driver.end()
        self.outcome.seconds = time.monotonic() - started
        self.outcome.epochs = newest_epoch(self.folder)
        return self.outcome

    def _round(self, one: Round) -> bool:
        """One driver's life. True: no more drivers are needed."""
        faults = one.faults
        if one.operation == "back" and self.savepoint is not None:
            self.restore_from = self.savepoint  # and so are its successors told, who must not go back again
        driver = Driver(self.campaign, self.folder, len(self.drivers), faults, self.restore_from)
        self.drivers.append(driver)
        first = newest_epoch(self.folder)
        pending = list(faults)
        fatal = False
        operated = one.operation not in ("savepoint", "rescale")
        while True:
            time.sleep(POLL_S)
            grown = newest_epoch(self.folder) - first
            if not operated and grown >= (2 if driver.process.poll() is not None or driver.stopped() else 3):
                operated = True
                self._save(one.at) if one.operation == "savepoint" else self._rescale()
            for fault in list(pending):
                if self._hit(driver, fault, grown):
                    pending.remove(fault)
                    self.outcome.kills += 1
                    self.say(f"{self.campaign.name}: {fault}, at epoch {first + grown}")
                    fatal = fatal or fault.fatal
                    if fault.kind == "stop":
                        self.sleepers.append((driver, newest_epoch(self.folder) + 1 + self.dice.choice(WAKE_AFTER)))
                        return False
            self._wake()
            code = driver.process.poll()
            if code is not None:
                if fatal or code == -signal.SIGKILL:
                    # A place that was passed just now leaves its mark only: count it.
                    late = [f for f in pending if not f.timed and driver.acted(f)]
                    self.outcome.kills += len(late)
                    for fault in late:
                        self.say(f"{self.campaign.name}: {fault}, at epoch {first + grown}")
                    return False
                if code != 0:
                    self.outcome.problems.append(f"driver {len(self.drivers)} ended with {code}:\n{driver.told()}")
                return True
            if time.monotonic() > self.deadline:
                self.outcome.problems.append(f"out of time at epoch {newest_epoch(self.folder)}; driver said:\n{driver.told()}")
                return True

    def _save(self, fault: Fault | None) -> None:
        """Make a savepoint beside the epochs: once by a process that is killed, then, to the same place, by one that is not."""
        to = self.folder / "savepoint"
        once = self.folder / "once-savepoint"
        once.mkdir()
        command = [sys.executable, "-c", "from penstock.cli import main; main()", "savepoint", str(self.folder / "storage")]
        for faults in [[fault], []] if fault is not None else [[]]:
            done = subprocess.run(
                [*command, "--to", str(to)], env=armed(faults, once), stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            if faults:
                if done.returncode == 0:
                    self.outcome.problems.append(f"a savepoint was made though its maker was killed: {fault}")
                elif (to / "savepoint.json").exists():
                    self.outcome.problems.append(f"a half-made savepoint passes for a whole one: {fault}")
                self.outcome.kills += 1
                self.say(f"{self.campaign.name}: maker of a savepoint, {fault}, at epoch {newest_epoch(self.folder)}")
            elif done.returncode != 0:
                self.outcome.problems.append(f"no savepoint could be made:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
            else:
                self.savepoint = str(to)

    def _rescale(self) -> None:
        ask(open_storage(self.folder / "storage"), "rescale", parallelism=self.dice.choice((1, 3, 4)))

    def _hit(self, driver: Driver, fault: Fault, grown: int) -> bool:
        """Has the fault happened? Timed ones are made to happen here."""
        if fault.kind == "stop":
            return driver.stopped()
        if fault.kind == "point":
            return driver.acted(fault)
        if grown <= fault.after or driver.process.poll() is not None:
            return False
        time.sleep(fault.delay)
        processes = of_session(driver.pid)
        if fault.kind == "driver":
            return kill(driver.pid)
        if fault.kind == "everybody":
            kill_session(driver.pid)
            return True
        if fault.kind == "worker":
            victims = python_workers(processes)
        elif fault.kind == "executor":
            victims = [process for process in processes if process.is_executor_jvm]
        else:
            victims = [process for process in processes if process.is_driver_jvm]
        return bool(victims) and kill(self.dice.choice(victims).pid)

    def _wake(self, *, everyone: bool = False) -> None:
        """Wake drivers that were stopped and have a successor: each must find out, commit nothing and stop."""
        for sleeper in list(self.sleepers):
            driver, when = sleeper
            if not everyone and newest_epoch(self.folder) < when:
                continue
            self.sleepers.remove(sleeper)
            before = newest_epoch(self.folder)
            kill(driver.pid, signal.SIGCONT)
            try:
                code = driver.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.outcome.problems.append(f"a driver that woke up late did not stop:\n{driver.told()}")
                continue
            self.say(f"{self.campaign.name}: the stopped driver woke up at epoch {before} and ended with {code}")
            if code == 0 or "FencedError" not in driver.told():
                self.outcome.problems.append(f"a driver that woke up late ended with {code}, not fenced:\n{driver.told()}")

    def _judge(self, job: Job) -> None:
        lost, duplicated = difference(job, str(self.folder / "input"), str(output_of(job, self.folder)))
        self.outcome.lost, self.outcome.duplicated = sum(lost.values()), sum(duplicated.values())
        if lost or duplicated:
            self.outcome.problems.append(f"lost: {lost.most_common(5)}\nduplicated: {duplicated.most_common(5)}")


def run_campaign(campaign: Campaign, folder: Path, seed: int, say: Callable[[str], None], *, limit_s: float = 900.0) -> Outcome:
    """Run a campaign in a new folder; it is removed again if all went well."""
    folder.mkdir(parents=True)
    outcome = Run(campaign, folder, random.Random(f"{seed}:{campaign.number}"), say, limit_s).run()
    if not outcome.problems:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome

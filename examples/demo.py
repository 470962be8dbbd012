"""The demonstration: a hundred simulated sensors, watched for about half a minute. `make demo` runs it.

A generator makes 20,000 readings a second. Each sensor has state and timers of its own: a report every five seconds of event
time, and an alert when it has been hot for three. Both go to files, exactly once. Half-way one of the job's Python workers is
killed. In the end everything is compared with the answer computed plainly, by a loop over the same readings.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock import (
    EpochRecord,
    FileSink,
    GeneratorSource,
    KeyedContext,
    KeyedProcessFunction,
    MapState,
    OnTimerContext,
    OutputTag,
    StreamEnvironment,
    ValueState,
    Watermarks,
    read_output,
)
from penstock.cli.screen.progress import Progress
from penstock.compile.in_process import RunOptions, applied

SENSORS = 100
HOT = 80.0
PATIENCE_MS = 3_000
REPORT_MS = 5_000
FOLDER = Path(__file__).resolve().parents[1] / "build" / "demo"


@dataclass(frozen=True)
class Reading:
    sensor: int
    time: int
    celsius: float


@dataclass(frozen=True)
class Report:
    """A sensor over five seconds."""

    sensor: int
    until: int
    readings: int
    hottest: float


@dataclass(frozen=True)
class Alert:
    sensor: int
    time: int


ALERTS: OutputTag[Alert] = OutputTag("alerts")


@dataclass(frozen=True)
class Simulation:
    """Reading n is a function of n and nothing else, so any epoch can be read again."""

    start_ms: int
    rate: int

    def __call__(self, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.RecordBatch:
        sensor = numbers % SENSORS
        time_ms = self.start_ms + numbers * 1000 // self.rate
        period_s = 5 + sensor % 20
        celsius = 60 + 25 * np.sin(2 * math.pi * (numbers / self.rate) / period_s + sensor)
        return pa.RecordBatch.from_pydict({"sensor": sensor, "time": time_ms, "celsius": np.round(celsius, 2)})


class Watch(KeyedProcessFunction[int, Reading, Report]):
    """Runs once for each sensor."""

    windows: MapState[int, tuple[int, float]] = MapState(int, tuple[int, float])
    hot_since: ValueState[int | None] = ValueState(int)

    def process(self, value: Reading, ctx: KeyedContext[int]) -> None:
        until = value.time // REPORT_MS * REPORT_MS + REPORT_MS
        count, hottest = self.windows.get(until) or (0, -math.inf)
        if count == 0:
            ctx.timers.register_event_time(until - 1)
        self.windows[until] = (count + 1, max(hottest, value.celsius))

        since = self.hot_since.value
        if value.celsius > HOT and since is None:
            self.hot_since.update(value.time)
            ctx.timers.register_event_time(value.time + PATIENCE_MS)
        elif value.celsius <= HOT and since is not None:
            self.hot_since.clear()
            if since + PATIENCE_MS > value.time:  # it has cooled down in time
                ctx.timers.delete_event_time(since + PATIENCE_MS)

    def on_timer(self, timestamp: int, ctx: OnTimerContext[int]) -> Iterator[Report]:
        window = self.windows.get(timestamp + 1)
        if window is not None:
            self.windows.remove(timestamp + 1)
            yield Report(ctx.key, timestamp + 1, *window)
        else:
            ctx.output(ALERTS, Alert(ctx.key, timestamp))


def expected(simulation: Simulation, count: int) -> tuple[Counter[Report], Counter[Alert]]:
    """The answer, the plain way."""
    reports: dict[tuple[int, int], tuple[int, float]] = {}
    alerts: Counter[Alert] = Counter()
    hot: dict[int, int] = {}
    columns = simulation(np.arange(count, dtype=np.int64)).to_pydict()
    for sensor, now, celsius in zip(columns["sensor"], columns["time"], columns["celsius"], strict=True):
        window = (sensor, now // REPORT_MS * REPORT_MS + REPORT_MS)
        seen, hottest = reports.get(window, (0, -math.inf))
        reports[window] = (seen + 1, max(hottest, celsius))
        if celsius > HOT:
            hot.setdefault(sensor, now)
        elif sensor in hot:
            since = hot.pop(sensor)
            if since + PATIENCE_MS <= now:
                alerts[Alert(sensor, since + PATIENCE_MS)] += 1
    # The input ends, and with it time: what is hot then stays hot for ever.
    alerts.update(Alert(sensor, since + PATIENCE_MS) for sensor, since in hot.items())
    return Counter(Report(*window, *seen) for window, seen in reports.items()), alerts


class Accident:
    """A listener that kills one of the job's Python workers when half of the readings are in."""

    def __init__(self, after: int, console: Console) -> None:
        self._left = after
        self._console = console
        self.killed: int | None = None

    def __call__(self, record: EpochRecord) -> None:
        before, self._left = self._left, self._left - record.records_in
        if before > 0 >= self._left:
            threading.Timer(0.05, self._strike).start()  # by then the next epoch is running

    def _strike(self) -> None:
        workers = python_workers()
        if workers:
            os.kill(workers[0], signal.SIGKILL)
            self.killed = workers[0]
            self._console.print(f"[yellow]killed the Python worker {workers[0]} with SIGKILL; watch the job go on[/yellow]")


def python_workers() -> list[int]:
    """The Python workers below this process: those that Spark's daemon, itself below the JVM, has forked."""
    parents: dict[int, int] = {}
    daemons: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*") if os.path.isdir("/proc") else ():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                daemons.add(int(entry.name))
        except OSError:
            continue
    return sorted(pid for pid in daemons if parents[pid] in daemons and _below(pid, os.getpid(), parents))


def _below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--rate", type=int, default=20_000, help="readings a second")
    parser.add_argument("--folder", type=Path, default=FOLDER / time.strftime("%Y%m%d-%H%M%S"), help="a new folder")
    options = parser.parse_args()
    if options.folder.exists():
        parser.error(f"{options.folder} exists: name a new folder")
    console = Console(highlight=False)
    count = round(options.seconds * options.rate)
    simulation = Simulation(start_ms=round(time.time() * 1000), rate=options.rate)

    console.print(
        f"[bold]{SENSORS} sensors, {options.rate:,} readings a second for {options.seconds:g} s, on an embedded Spark.[/bold]\n"
        "Each sensor has state and timers of its own. Reports and alerts go to files, exactly once.\n"
    )
    quiet = {"penstock.spark.log": "OFF"}  # the accident is announced: Spark need not complain of it
    progress, accident = Progress(console), Accident(count // 2, console)
    outside = RunOptions.current()  # under `penstock run` there is a progress already
    with applied(replace(outside, listeners=(*(outside.listeners or (progress,)), accident))):
        env = StreamEnvironment("demo", storage=str(options.folder / "job"), spark_config=quiet)
    readings = env.from_source(
        GeneratorSource(simulation, count=count, rate=options.rate, partitions=4, vectorised=True, schema=Reading),
        watermarks=Watermarks.monotonous(timestamp="time"),
        name="readings",
    )
    reports = readings.key_by("sensor").process(Watch(), name="watch")
    reports.sink_to(FileSink(str(options.folder / "reports"), format="parquet"), name="reports")
    reports.side_output(ALERTS).sink_to(FileSink(str(options.folder / "alerts"), format="json"), name="alerts")

    result = env.execute()

    found_reports = Counter(Report(**row) for row in read_output(options.folder / "reports"))
    found_alerts = Counter(Alert(**row) for row in read_output(options.folder / "alerts"))
    _show_hottest(console, found_reports, found_alerts, simulation.start_ms)
    if (found_reports, found_alerts) != expected(simulation, count):
        console.print("[bold red]The files differ from the expected answer.[/bold red]")
        raise SystemExit(1)
    counted = sum(report.readings for report in found_reports.elements())
    incident = f" One worker was killed on the way; restarts of the job: {result.restarts}." if accident.killed else ""
    console.print(
        f"\n[bold green]exactly once: {count:,} events in, counts add up[/bold green] "
        f"({counted:,} readings in {found_reports.total():,} reports, {found_alerts.total():,} alerts, each as expected)."
        f"{incident}"
    )
    _show_where_next(console, options.folder)


def _show_hottest(console: Console, reports: Counter[Report], alerts: Counter[Alert], start_ms: int) -> None:
    per_sensor = Counter(alert.sensor for alert in alerts.elements())
    table = Table(title="the sensors with the most alerts", title_justify="left")
    for column in ("sensor", "alerts", "first alert after", "readings", "hottest"):
        table.add_column(column, justify="right")
    for sensor, number in sorted(per_sensor.items(), key=lambda item: (-item[1], item[0]))[:6]:
        own = [report for report in reports if report.sensor == sensor]
        first = min(alert.time for alert in alerts if alert.sensor == sensor)
        table.add_row(
            str(sensor),
            str(number),
            f"{(first - start_ms) / 1000:.1f} s",
            f"{sum(report.readings for report in own):,}",
            f"{max(report.hottest for report in own):.1f} °C",
        )
    console.print(table)


def _show_where_next(console: Console, folder: Path) -> None:
    shown = os.path.relpath(folder)
    program = os.path.relpath(__file__)
    command = ".venv/bin/penstock" if os.path.exists(".venv/bin/penstock") else "penstock"
    console.print(
        "\nWhere to look next:\n"
        f"  {program}    this program\n"
        f"  {shown}/reports, {shown}/alerts    what it wrote\n"
        f"  {shown}/job    its state and its epochs\n"
        f"  {command} explain {program}    its steps, stages, exchanges and state\n"
        f"  {command} jobs {shown}    jobs and what became of them\n"
        f"  {command} doctor    is everything here that a job needs?\n"
        "  README.md    a first program of your own",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()

"""`penstock top`: jobs and their steps, live."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.commands.jobs import FoundJob, describe_job
from penstock.cli.screen.problems import clean_errors
from penstock.cli.screen.progress import duration, size
from penstock.cli.screen.tables import console_for, print_table
from penstock.errors import ConfigError
from penstock.jobs.listing import find_jobs
from penstock.jobs.metrics.job_metrics import JobMetrics, StepNow, read_metrics
from penstock.storage import LocalStorage, Storage, open_storage

OLD_S = 10.0
"""Rates that were told longer ago are not shown."""


@dataclass(frozen=True, slots=True)
class Look:
    """A job, as it is now."""

    job: FoundJob
    metrics: JobMetrics | None
    age_s: float

    @property
    def present(self) -> JobMetrics | None:
        """What it does, if it does anything."""
        return self.metrics if self.job.condition == "running" and self.age_s < OLD_S else None


def top_command(
    root: Annotated[str, typer.Argument(metavar="[STORAGE-ROOT]", help="A folder or URI; the jobs below it are shown.")] = ".",
    every: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once; so it is where there is no terminal.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Show jobs and their steps, until Ctrl-C."""
    with clean_errors(trace=trace):
        below = open_storage(root)
        if isinstance(below, LocalStorage) and not os.path.isdir(below.root):
            raise ConfigError(f"there is no folder {root}", hint="give a folder or a URI; the jobs below it are shown")
        console = console_for()
        if once or not console.is_terminal:
            for table in tables(_look(below)):
                print_table(console, table)
            return
        try:
            with Live(console=console, screen=True, auto_refresh=False) as live:
                while True:
                    live.update(_fitting(tables(_look(below)), console.height), refresh=True)
                    time.sleep(every)
        except KeyboardInterrupt:
            pass


def _look(below: Storage) -> list[Look]:
    now = time.time()
    found = []
    for storage in find_jobs(below):
        metrics = read_metrics(storage)
        found.append(Look(describe_job(storage), metrics, 0.0 if metrics is None else max(0.0, now - metrics.at_ms / 1000)))
    return found


def tables(looks: list[Look]) -> list[Table]:
    """One of the jobs, and one of the steps of those that run. Pure."""
    jobs = Table(title=f"{len(looks)} jobs" if looks else "no jobs here", title_justify="left")
    for name in ("job", "condition", "epoch", "records/s", "epoch takes", "restarts", "state", "in storage"):
        jobs.add_column(name, justify="left" if name in ("job", "condition") else "right")
    steps = Table(title="steps", title_justify="left")
    for name in ("job", "step", "in/s", "in", "out", "busy", "lag", "backlog", "left out"):
        steps.add_column(name, justify="left" if name in ("job", "step") else "right")
    for look in looks:
        now, metrics = look.present, look.metrics
        jobs.add_row(
            Text(look.job.name),
            Text(look.job.shown),
            _number(look.job.epoch),
            "-" if now is None else f"{now.records_in_per_second:,.0f}",
            "-" if now is None or not now.epochs else duration(now.epoch_seconds / now.epochs),
            "-" if now is None else f"{now.restarts:,}",
            "-" if metrics is None else _number(metrics.state_entries),
            "-" if metrics is None or metrics.state_bytes is None else size(metrics.state_bytes),
        )
        for name, step in () if now is None else now.steps.items():
            steps.add_row(Text(look.job.name), Text(name), *_cells(step))
    return [jobs, steps] if steps.row_count else [jobs]


def _cells(step: StepNow) -> list[str]:
    return [
        f"{step.records_in_per_second:,.0f}",
        f"{step.records_in:,}",
        f"{step.records_out:,}",
        f"{step.busy:.0%}",
        "-" if step.watermark_lag_ms is None else duration(step.watermark_lag_ms / 1000),
        _number(step.backlog),
        _number(step.late + step.skipped + step.dead_letters or None),
    ]


def _number(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _fitting(shown: list[Table], height: int) -> RenderableType:
    """As many steps as there are lines for."""
    for table in shown:
        for column in table.columns:
            column.no_wrap = True
            column.overflow = "ellipsis"
    if len(shown) > 1:
        room = max(1, height - shown[0].row_count - 11)
        steps = shown[1]
        hidden = steps.row_count - room
        if hidden > 0:
            del steps.rows[room:]
            for column in steps.columns:
                del column._cells[room:]
            steps.caption = f"{hidden} more"
    return Group(*shown)

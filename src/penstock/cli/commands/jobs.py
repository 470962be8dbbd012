"""`penstock jobs`: the jobs below a storage URI."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors
from penstock.cli.screen.progress import busiest, duration
from penstock.cli.screen.tables import console_for, print_table
from penstock.epochs.committing.intents import left_out_at_rest
from penstock.epochs.rates import WINDOW_S
from penstock.errors import ConfigError, CorruptFileError, PenstockError
from penstock.jobs.left_out import NOTHING, LeftOut
from penstock.jobs.listing import epochs_in, find_jobs
from penstock.jobs.liveness import has_ended, is_alive, newest_term, state_of, wrote
from penstock.jobs.manifest import load_manifest
from penstock.jobs.status import EVERY_S, Status, read_status
from penstock.jobs.terms import TermInfo, read_job
from penstock.storage import LocalStorage, Storage, open_storage

Condition = Literal["running", "finished", "drained", "stopped", "failed", "gone", "elsewhere", "damaged"]
"""`drained`: finished, by ending its time.
`gone`: its driver's process has disappeared; `elsewhere`: driven from another host, which cannot be looked at from here."""


FRESH_S = 3 * EVERY_S
"""A rate that was told longer ago is shown with its age."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What a driver told of its rate, and how long ago."""

    told: float
    age_s: float

    @property
    def present(self) -> float:
        """A driver that commits nothing, because it has nothing to do or hangs, tells nothing."""
        return self.told if self.age_s < 2 * WINDOW_S else 0.0

    def __str__(self) -> str:
        return f"{self.told:,.0f}" if self.age_s < FRESH_S else f"{self.told:,.0f}, {duration(self.age_s)} ago"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """A job, as its storage tells."""

    name: str
    condition: Condition
    epoch: int | None
    epoch_ms: int | None
    host: str | None
    pid: int | None
    records_per_second: float | None
    storage: str
    rate_told: float | None = None
    """The last one; `rate_age_s` seconds ago."""
    rate_age_s: float | None = None
    busy: dict[str, float] = field(default_factory=dict)
    """While it runs: the share of the time that each step was busy, as of late."""
    key_hash: int | None = None
    left_out: LeftOut = NOTHING
    """What is not in the results, since the job began."""
    problem: str = ""
    """Why it is damaged: what is wrong with one of its files."""
    state: str = ""
    """What a running driver is doing, if it has said: see `penstock.epochs.lifecycle`."""

    @property
    def shown(self) -> str:
        """The condition, and what there is to say of it."""
        if self.problem:
            return f"{self.condition}: {self.problem}"
        return self.condition if self.state in ("", self.condition) else f"{self.condition}, {self.state}"


def jobs_command(
    root: Annotated[str, typer.Argument(metavar="[STORAGE-ROOT]", help="A folder or URI; the jobs below it are listed.")] = ".",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """List the jobs below a storage URI."""
    with clean_errors(trace=trace):
        below = open_storage(root)
        if isinstance(below, LocalStorage) and not os.path.isdir(below.root):
            raise ConfigError(f"there is no folder {root}", hint="give a folder or a URI; the jobs below it are listed")
        found = [describe_job(storage) for storage in find_jobs(below)]
    if as_json:
        echo(json.dumps([_as_json(job) for job in found], indent=2))
    elif not found:
        echo(f"no jobs below {root}")
    else:
        print_table(console_for(), _table(found))


def describe_job(storage: Storage) -> FoundJob:
    """What its storage tells. A job with a file that cannot be read is one row like any other, whatever is in that file."""
    place = storage.root if isinstance(storage, LocalStorage) else storage.uri
    try:
        return _described(storage, place)
    except Exception as error:
        problem = error.what if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        return FoundJob(
            name="?",
            condition="damaged",
            epoch=None,
            epoch_ms=None,
            host=None,
            pid=None,
            records_per_second=None,
            storage=place,
            problem=problem,
        )


def _described(storage: Storage, place: str) -> FoundJob:
    term, status = newest_term(storage), read_status(storage)
    manifests = epochs_in(storage).manifests
    newest = max(manifests, default=None)
    condition: Condition
    problem = state = ""
    try:
        name = read_job(storage).name
        head = None if newest is None else load_manifest(storage, newest)
        at_rest = NOTHING if head is None else left_out_at_rest(storage, head)
    except CorruptFileError as error:
        name, condition, head, at_rest, problem = "?", "damaged", None, NOTHING, error.what
    else:
        ended = term is not None and has_ended(term, status)
        if term is not None and is_alive(term) and not ended:
            condition, state = "running", state_of(storage, term, status)
        elif head is not None and head.finished:
            condition = "finished" if head.drained is None else "drained"
        elif ended and status is not None:
            condition = status.phase
        else:
            condition = "elsewhere" if term is not None and term.host != socket.gethostname() else "gone"
    rate = rate_now(status, term, time.time()) if condition == "running" else None
    return FoundJob(
        name=name,
        condition=condition,
        epoch=newest,
        epoch_ms=None if newest is None else manifests[newest],
        host=None if term is None else term.host,
        pid=None if term is None else term.pid,
        records_per_second=None if rate is None else rate.present,
        rate_told=None if rate is None else rate.told,
        rate_age_s=None if rate is None else round(rate.age_s, 1),
        storage=place,
        busy={} if rate is None or status is None else status.busy,
        key_hash=None if head is None else head.state.key_hash,
        left_out=head.left_out_in_all if head is not None and condition == "running" else at_rest,
        problem=problem,
        state=state,
    )


def rate_now(status: Status | None, term: TermInfo | None, now: float) -> Rate | None:
    """What the running driver last told of its rate; None: it has told nothing yet. Pure."""
    if status is None or term is None or not wrote(term, status):
        return None
    return Rate(status.records_per_second, max(0.0, now - status.updated_ms / 1000))


def _as_json(job: FoundJob) -> dict[str, Any]:
    """Of what is not in the results only what there is."""
    return {**asdict(job), "left_out": msgspec.to_builtins(job.left_out)}


def _table(found: list[FoundJob]) -> Table:
    table = Table()
    for column in ("job", "condition", "epoch", "committed", "records/s", "driver", "storage"):
        table.add_column(column, overflow="fold")
    busy, left_out = any(job.busy for job in found), any(job.left_out for job in found)
    if busy:
        table.add_column("busiest step", overflow="fold")
    if left_out:
        table.add_column("not in results", overflow="fold")
    for job in found:
        ago = "-" if job.epoch_ms is None else f"{duration(max(0.0, time.time() - job.epoch_ms / 1000))} ago"
        table.add_row(
            Text(job.name),
            Text(job.shown),
            "-" if job.epoch is None else str(job.epoch),
            ago,
            "-" if job.rate_told is None or job.rate_age_s is None else str(Rate(job.rate_told, job.rate_age_s)),
            "-" if job.host is None else Text(f"{job.host}:{job.pid}"),
            Text(job.storage),
            *([Text(busiest(job.busy) if job.busy else "-")] if busy else []),
            *([job.left_out.sentence() or "-"] if left_out else []),
        )
    return table

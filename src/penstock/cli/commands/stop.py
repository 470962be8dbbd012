"""`penstock stop`: ask a job's driver, through its storage, to stop after the current epoch; and keep a savepoint of it."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from penstock.api.job import Job
from penstock.cli.commands.savepoint import show_savepoint, shown_progress, summary
from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors
from penstock.errors import ConfigError
from penstock.jobs import paths
from penstock.jobs.listing import find_jobs
from penstock.jobs.liveness import stop_driver
from penstock.storage import Storage, open_storage


def stop_command(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's storage: a folder or URI.")],
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the driver's answer.")] = 60.0,
    drain: Annotated[
        bool, typer.Option("--drain", help="First end all time: windows close, timers fire; the job cannot go on afterwards.")
    ] = False,
    savepoint: Annotated[bool, typer.Option("--savepoint", help="Then make a savepoint of its last epoch.")] = False,
    to: Annotated[
        str | None, typer.Option(metavar="URI", help="Where the savepoint goes: an empty folder or s3://bucket/prefix.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Stop a running job after its current epoch, all of whose output is then published."""
    with clean_errors(trace=trace):
        storage = open_storage(job)
        check_job(storage)
        if to is not None and not savepoint:
            raise ConfigError("--to says where a savepoint goes, but none is asked for", hint="add --savepoint")
        began = time.monotonic()
        with shown_progress() as told:
            stopped = Job(job).stop(savepoint=to or savepoint, drain=drain, timeout=timeout, told=told)
        made, seconds = stopped.savepoint, time.monotonic() - began
        if as_json:
            shown = {
                "epoch": stopped.epoch,
                "drained": stopped.drained,
                "savepoint": None if made is None else summary(made, seconds),
            }
            echo(json.dumps(shown, indent=2))
            return
        echo(stopped.message)
        if made is not None:
            show_savepoint(made, seconds, as_json=False)


def stop_job(storage: Storage, timeout: float) -> str:
    """What the driver answered. Nobody there, or no answer: an error that says so."""
    check_job(storage)
    return stop_driver(storage, timeout).message


def check_job(storage: Storage) -> None:
    """Refuse a storage without a job, naming those below it."""
    if not storage.exists(paths.JOB):
        below = [found.uri for found in find_jobs(storage)]
        raise ConfigError(
            f"{storage.uri} holds no job",
            detail="".join(f"there is one in {uri}\n" for uri in below[:5]).rstrip(),
            hint="give the storage that the job was run with; `penstock jobs ROOT` lists those below a folder",
        )
